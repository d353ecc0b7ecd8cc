// specs.h: sizes of operands in memory, for any device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "hetero_device.h"

namespace hetero {

int64_t dtype_size(int32_t dtype);     // bytes of an element; 0 if unknown
int64_t elements(const ht_spec &spec); // product of the dims, without padding
int64_t
bytes_in_memory(const ht_spec &spec);  // bytes with padding; throws Invalid if the layout does not match the dims
void set_bytes(ht_spec &spec);         // spec.bytes = bytes_in_memory(spec); does not change opaque specs
bool has_padding(const ht_spec &spec); // whether the tensor occupies more bytes in memory than its elements need
ht_spec with_layout(ht_spec spec, uint32_t layout);                    // the same tensor in another layout, bytes set
ht_spec make_spec(int32_t dtype, std::initializer_list<int64_t> dims); // a plain spec, bytes set
ht_spec opaque_spec(int64_t bytes);
bool same_dims(const ht_spec &a, const ht_spec &b);
std::string describe(const ht_spec &spec); // "f32(2, 3, 4) nChw16c", for error texts

// Each library defines these functions for its private layouts.
int64_t private_bytes(const ht_spec &spec); // throws Invalid if the layout does not match the dims
std::string layout_name(uint32_t layout);   // "plain", "nhwc", …

} // namespace hetero
