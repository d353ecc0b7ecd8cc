// linear.h: Linear and its gradients with oneDNN's inner products. If oneDNN does not support the request, plain
// kernels are used.
//
// The factories of ops.h also offer the kernels of panel_linear.h.
#pragma once

#include <memory>

#include "kernel.h"

namespace hetero {

// The caller must check the shapes of the request first.
std::unique_ptr<Kernel> make_library_linear(const Request &r);
std::unique_ptr<Kernel> make_library_linear_diff_src(const Request &r);
std::unique_ptr<Kernel> make_library_linear_diff_weights(const Request &r);

} // namespace hetero
