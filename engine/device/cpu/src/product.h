// product.h: common code of convolutions and linear layers: dst = src (x) weight, and the gradients of both.
//
// oneDNN offers several formats for each operand. The rules of the choice:
//   - an image keeps its private layout (or that to which it is bound) if an optimised implementation accepts it;
//   - other gradients use the image formats of the forward pass: backward-data alone picks nhwc for some shapes, and
//     every neighbour would need a reorder;
//   - weights keep an offered private layout if that costs nothing; otherwise the implementation chooses;
//   - the weight gradient's format is chosen at one batch size for all, because optimizer state uses it;
//   - if an output is bound to another layout than that of the best implementation, a reorder follows.
#pragma once

#if HT_HAVE_ONEDNN

#include <functional>

#include "onednn.h"

namespace hetero {

enum class Pass { forward, diff_src, diff_weights };

// src, weight and dst of the forward pass, or the gradients in their places.
struct Product {
  Pass pass;
  ht_spec src, weight, dst;
  bool bias;      // forward reads it, diff_weights computes its gradient
  int64_t groups; // of a convolution, else 1
};

struct Formats {
  Desc src, weight, dst;
};

using PrimitiveDesc = dnnl::primitive_desc_base;

// Creates the descriptor of p with these formats (some may be `any`), empty if oneDNN has no implementation.
using Builder = std::function<PrimitiveDesc(const Product &p, const Formats &)>;

// Assigns roles to the operands of a request.
Product product_of(const Request &r, Pass pass, int64_t groups);

// Binds the weight gradient of a request of that pass, unless it is bound, to its layout for every batch size: the one
// that oneDNN chooses for canonical_batch.
void bind_weight_gradient(Request &r, int64_t groups, const Builder &build, int64_t canonical_batch);

// Returns the kernel for p = product_of(r, …), nullptr if oneDNN has none.
std::unique_ptr<Kernel> make_product(const Request &r, const Product &p, const Builder &build);

// The forward pass of which p is a gradient, with open formats: the hint of backward descriptors.
Product forward_of(const Product &p);
Formats any_formats(const Product &p);
dnnl::primitive_attr user_scratchpad();

} // namespace hetero

#endif // HT_HAVE_ONEDNN
