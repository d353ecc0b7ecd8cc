// product.h: common code of convolutions and linear layers. Both compute dst from src and weight; this file calls them
// products. It also contains the gradients of both.
//
// oneDNN offers several formats for each operand. These rules determine the choice:
//   - An image keeps its private layout, or the layout to which it is bound, if an optimised implementation accepts it.
//   - Gradients of images use the formats of the forward pass. For some shapes, only backward-data prefers nhwc, and
//     with this format every neighbouring op would need a reorder.
//   - Weights keep a private layout that the request offers, if this costs no speed. Otherwise, the implementation
//     chooses the layout.
//   - The weight gradient has the format for one certain batch size, not for the actual one, because optimizer state
//     uses this format.
//   - If an output is bound to another layout than that of the best implementation, a reorder follows.
#pragma once

#if HT_HAVE_ONEDNN

#include <functional>

#include "onednn.h"

namespace hetero {

enum class Pass { forward, diff_src, diff_weights };

// The tensors src, weight and dst of the forward pass. In a gradient, diff_src, diff_weight or diff_dst takes the place
// of the corresponding tensor.
struct Product {
  Pass pass;
  ht_spec src, weight, dst;
  bool bias;      // whether there is a bias, which forward reads, or its gradient, which diff_weights computes
  int64_t groups; // groups of a convolution; otherwise 1
};

struct Formats {
  Desc src, weight, dst;
};

using PrimitiveDesc = dnnl::primitive_desc_base;

// Creates the primitive descriptor of p with the given formats, some of which may be `any`. The descriptor is empty if
// oneDNN has no implementation.
using Builder = std::function<PrimitiveDesc(const Product &p, const Formats &)>;

// Returns the operands of a request by their roles: src, weight and dst.
Product product_of(const Request &r, Pass pass, int64_t groups);

// Binds the weight gradient of a diff_weights request to a layout, unless it is already bound. The layout is the one
// that oneDNN chooses for the batch size canonical_batch, not for the actual one.
void bind_weight_gradient(Request &r, int64_t groups, const Builder &build, int64_t canonical_batch);

// Returns the kernel for p, which must be product_of(r, …), or nullptr if oneDNN has no kernel.
std::unique_ptr<Kernel> make_product(const Request &r, const Product &p, const Builder &build);

// Returns the forward pass that belongs to gradient p, with formats left open. Backward descriptors need it as a hint.
Product forward_of(const Product &p);
Formats any_formats(const Product &p);
dnnl::primitive_attr user_scratchpad();

} // namespace hetero

#endif // HT_HAVE_ONEDNN
