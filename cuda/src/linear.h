// linear.h: gradients of a linear layer whose diff_dst has gaps between its rows.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel.h"

namespace hetero {

// `stride` is the number of elements from one row of diff_dst to the next in memory, at least the number of outputs.
// diff_dst must have the type of the other factor of the product.
std::unique_ptr<Kernel> make_linear_diff_src(const Request &request, int64_t stride);
std::unique_ptr<Kernel> make_linear_diff_weights(const Request &request, int64_t stride);

} // namespace hetero
