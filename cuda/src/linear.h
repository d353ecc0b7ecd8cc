// linear.h: the gradient of a linear layer's weights, for a diff_dst that has gaps between its rows.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel.h"

namespace hetero {

// stride: elements from one row of diff_dst in memory to the next, at least the number of outputs. diff_dst has the
// type of src. add: the kernel adds to diff_weight, but still overwrites diff_bias.
std::unique_ptr<Kernel> make_linear_diff_weights(const Request &request, int64_t stride, bool add);

} // namespace hetero
