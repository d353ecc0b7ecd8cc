// linear.h: gradients of a linear layer whose diff_dst has gaps between its rows.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel.h"

namespace hetero {

// stride: elements from one row of diff_dst in memory to the next, at least the number of outputs. diff_dst has the
// type of the other factor.
std::unique_ptr<Kernel> make_linear_diff_src(const Request &request, int64_t stride);
std::unique_ptr<Kernel> make_linear_diff_weights(const Request &request, int64_t stride);

} // namespace hetero
