// requests.h: what a request to compile must look like whatever the op, and what a factory must have made of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel.h"

namespace hetero {

// "conv2d", for error texts; "op 99" for a number that is none.
std::string op_name(int32_t op);

// Checks the number of operands, the size of the parameters, and each spec by itself; fills in the bytes of specs whose
// layout is known. Throws Invalid, or Unsupported for an unknown op.
Request checked_request(int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in,
                        const ht_spec *out, int32_t num_out, int threads);

// Throws std::logic_error where a kernel leaves open what it must say, or changed what it must not: the library's fault.
void check_kernel(const Kernel &k, const Request &r);

} // namespace hetero
