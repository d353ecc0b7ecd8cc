// product.h: what convolutions and linear layers have in common: dst = src (x) weight, and the gradients of both.
//
// oneDNN offers several formats for each; the choice follows these rules:
//   - a private layout in which an image already lies (or is bound to lie) is kept if an optimised implementation takes it;
//   - gradients otherwise use the image formats that the forward pass prefers: left alone, backward-data picks nhwc
//     for some shapes and every neighbour would pay a reorder;
//   - weights stay in a private layout in which they are offered if that costs nothing, else they are wanted in whatever
//     format the implementation likes best;
//   - the weight gradient's format is chosen at one batch size for all, since optimizer state lives in it;
//   - where an output is bound to another layout than the best implementation writes, a reorder follows it.
#pragma once

#if HT_HAVE_ONEDNN

#include <functional>

#include "onednn.h"

namespace hetero {

enum class Pass { forward, diff_src, diff_weights };

// src, weight and dst of the forward pass, or the gradients that stand in their places.
struct Product {
  Pass pass;
  ht_spec src, weight, dst;
  bool bias;      // forward reads one, diff_weights makes its gradient
  int64_t groups; // of a convolution, else 1
};

struct Formats {
  Desc src, weight, dst;
};

using PrimitiveDesc = dnnl::primitive_desc_base;

// Makes the descriptor of p with these formats (some may be `any`), empty where oneDNN has no implementation.
using Builder = std::function<PrimitiveDesc(const Product &p, const Formats &)>;

// Sorts the operands of a request into roles.
Product product_of(const Request &r, Pass pass, int64_t groups);

// Binds the weight gradient of a request of that pass to the layout that it has for every batch size, unless it is bound:
// the one that oneDNN chooses for this batch.
void bind_weight_gradient(Request &r, int64_t groups, const Builder &build, int64_t canonical_batch);

// The kernel for p = product_of(r, …), nullptr where oneDNN has none.
std::unique_ptr<Kernel> make_product(const Request &r, const Product &p, const Builder &build);

// The forward pass of which p is a gradient, formats left open: what backward descriptors take as a hint.
Product forward_of(const Product &p);
Formats any_formats(const Product &p);
dnnl::primitive_attr user_scratchpad();

} // namespace hetero

#endif // HT_HAVE_ONEDNN
