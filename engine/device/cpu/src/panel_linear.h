// panel_linear.h: Linear and its gradients in f32 or bf16 on the tiles of panel_product.h.
#pragma once

#include <memory>

#include "kernel.h"

namespace hetero {

// Return the kernel for a request whose shapes have been checked, or nullptr if these kernels do not support it.
std::unique_ptr<Kernel> make_panel_linear(const Request &r);
std::unique_ptr<Kernel> make_panel_linear_diff_src(const Request &r);
std::unique_ptr<Kernel> make_panel_linear_diff_weights(const Request &r);

} // namespace hetero
