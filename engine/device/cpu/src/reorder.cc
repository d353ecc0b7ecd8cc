// reorder.cc: Reorder, between layouts and element types.
//
// If types and layouts are equal, the bytes are copied. Special kernels make working copies of weights
// (weight_reorder.h). All other cases use oneDNN's reorder primitive. If oneDNN is missing or does not have the
// primitive (bf16 without AVX-512), only plain tensors and images are supported; this file converts them element by
// element.
#include <algorithm>
#include <cstring>

#include "layout.h"
#include "onednn.h"
#include "ops.h"
#include "plain_types.h"
#include "weight_reorder.h"

namespace hetero {

namespace {

struct CopyBytes : Kernel {
  void run(const Args &args) override {
    constexpr int64_t piece = 1 << 18; // bytes: large enough to justify waking a thread
    auto *dst = static_cast<char *>(args.out[0]);
    auto *src = static_cast<const char *>(args.in[0]);
    int64_t n = in[0].bytes, pieces = (n + piece - 1) / piece;
    if (dst == src) return;
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++)
      std::memcpy(dst + i * piece, src + i * piece, static_cast<size_t>(std::min(piece, n - i * piece)));
  }
};

// Converts images between any two of their layouts. A plain tensor is treated as one long image.
template <class From, class To> struct Convert : Kernel {
  ImageLayout from, to;
  Convert(const ImageLayout &a, const ImageLayout &b) : from(a), to(b) {}

  void run(const Args &args) override {
    auto *src = static_cast<const From *>(args.in[0]);
    auto *dst = static_cast<To *>(args.out[0]);
    int64_t rows = to.n * to.cblocks, pixels = to.pixels();
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t row = 0; row < rows; row++)
      for (int64_t pixel = 0; pixel < pixels; pixel++)
        for (int64_t l = 0; l < to.blk; l++) {
          int64_t n = row / to.cblocks, c = row % to.cblocks * to.blk + l;
          store(dst + (row * pixels + pixel) * to.blk + l, c < to.c ? load(src + from.index(n, c, pixel)) : 0);
        }
  }
};

ImageLayout as_image(const ht_spec &s) {
  ImageLayout l;
  if (image_layout(s, &l)) return l;
  if (s.layout != HT_LAYOUT_PLAIN) throw Unsupported(describe(s) + ": want the plain layout or an image layout");
  return {1, 1, 1, elements(s), 1, 1, false};
}

std::unique_ptr<Kernel> make_plain_conversion(const ht_spec &from, const ht_spec &to) {
  std::unique_ptr<Kernel> k;
  ImageLayout a = as_image(from), b = as_image(to);
  with_type(from, [&](auto *f) {
    with_type(to, [&](auto *t) {
      k = std::make_unique<Convert<std::remove_pointer_t<decltype(f)>, std::remove_pointer_t<decltype(t)>>>(a, b);
    });
  });
  return k;
}

std::unique_ptr<Kernel> make_conversion(const ht_spec &from, const ht_spec &to) {
  if (auto k = make_weight_reorder(from, to)) return k;
#if HT_HAVE_ONEDNN
  int64_t groups = std::max(layout_groups(from.layout), layout_groups(to.layout));
  auto k = std::make_unique<ChainKernel>();
  if (k->chain.add_reorder({PrimitiveChain::Operand::input, 0, desc_of(from, groups)},
                           {PrimitiveChain::Operand::output, 0, desc_of(to, groups)})) {
    k->workspace = k->chain.workspace_bytes();
    return k;
  }
#endif
  return make_plain_conversion(from, to);
}

} // namespace

std::unique_ptr<Kernel> make_reorder(const Request &r) {
  ht_spec from = r.in[0], to = r.out[0];
  if (!same_dims(from, to))
    throw Invalid("reorder: " + describe(from) + " to " + describe(to) + ": want the same shape");
  if (from.dtype == HT_OPAQUE) throw Invalid("reorder: got an opaque tensor, want an element type");
  // If one side leaves the layout open, both sides get the same layout, so that no elements move. This requires that
  // the layout supports the other type.
  auto alike = [&](uint32_t l) {
    return l == HT_LAYOUT_ANY || (l & kRegistered && from.dtype != to.dtype) ? HT_LAYOUT_PLAIN : l;
  };
  if (from.layout == HT_LAYOUT_ANY) from.layout = alike(to.layout);
  if (to.layout == HT_LAYOUT_ANY) to.layout = alike(from.layout);
  bool copy = from.dtype == to.dtype && from.layout == to.layout;
  if (!copy && (from.dtype != HT_F32 && from.dtype != HT_BF16))
    throw Unsupported("reorder of " + describe(from) + " to " + describe(to) + ": want f32 or bf16");
  if (!copy && (to.dtype != HT_F32 && to.dtype != HT_BF16))
    throw Unsupported("reorder of " + describe(from) + " to " + describe(to) + ": want f32 or bf16");
  set_bytes(from);
  set_bytes(to);
  std::unique_ptr<Kernel> k = copy ? std::make_unique<CopyBytes>() : make_conversion(from, to);
  k->in = {from};
  k->out = {to};
  if (copy) k->inplace = {{0, 0}};
  return k;
}

} // namespace hetero
