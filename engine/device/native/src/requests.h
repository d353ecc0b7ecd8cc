// requests.h: checks of compile requests for any op, and checks of the kernels that factories return.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel.h"

namespace hetero {

// Returns the name of an op for error texts: "conv2d", or "op 99" for an unknown number.
std::string op_name(int32_t op);

// Checks the number of operands, the size of the parameters, and each spec; sets the bytes of specs with a known
// layout. Throws Invalid, or Unsupported for an unknown op.
Request checked_request(int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in,
                        const ht_spec *out, int32_t num_out, int threads);

// Throws std::logic_error if a kernel has not set a required value, or has changed a fixed value. Such a kernel is a
// bug in the library.
void check_kernel(const Kernel &k, const Request &r);

} // namespace hetero
