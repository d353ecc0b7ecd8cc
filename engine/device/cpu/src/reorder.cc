// reorder.cc: Reorder, between layouts and element types.
//
// The same type in the same layout, whatever both are, is a copy of bytes. Everything else is oneDNN's reorder
// primitive; without oneDNN there are only plain tensors, of f32 and bf16, converted here.
#include <algorithm>
#include <cstring>

#include "bf16.h"
#include "layout.h"
#include "onednn.h"
#include "ops.h"

namespace hetero {

namespace {

struct CopyBytes : Kernel {
  void run(const Args &args) override {
    constexpr int64_t piece = 1 << 18; // bytes: enough for a thread to be worth waking
    auto *dst = static_cast<char *>(args.out[0]);
    auto *src = static_cast<const char *>(args.in[0]);
    int64_t n = in[0].bytes, pieces = (n + piece - 1) / piece;
    if (dst == src) return;
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++) std::memcpy(dst + i * piece, src + i * piece, static_cast<size_t>(std::min(piece, n - i * piece)));
  }
};

#if HT_HAVE_ONEDNN

std::unique_ptr<Kernel> make_conversion(const ht_spec &from, const ht_spec &to) {
  int64_t groups = std::max(layout_groups(from.layout), layout_groups(to.layout));
  auto k = std::make_unique<ChainKernel>();
  k->chain.add_reorder({PrimitiveChain::Operand::input, 0, desc_of(from, groups)}, {PrimitiveChain::Operand::output, 0, desc_of(to, groups)});
  k->workspace = k->chain.workspace_bytes();
  return k;
}

#else

struct Narrow : Kernel {
  void run(const Args &args) override {
    auto *src = static_cast<const float *>(args.in[0]);
    auto *dst = static_cast<uint16_t *>(args.out[0]);
    int64_t n = elements(in[0]);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) dst[i] = f32_to_bf16(src[i]);
  }
};

struct Widen : Kernel {
  void run(const Args &args) override {
    auto *src = static_cast<const uint16_t *>(args.in[0]);
    auto *dst = static_cast<float *>(args.out[0]);
    int64_t n = elements(in[0]);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) dst[i] = bf16_to_f32(src[i]);
  }
};

std::unique_ptr<Kernel> make_conversion(const ht_spec &from, const ht_spec &to) {
  if (from.dtype == HT_F32 && to.dtype == HT_BF16) return std::make_unique<Narrow>();
  if (from.dtype == HT_BF16 && to.dtype == HT_F32) return std::make_unique<Widen>();
  throw Unsupported("reorder of " + describe(from) + " to " + describe(to));
}

#endif

} // namespace

std::unique_ptr<Kernel> make_reorder(const Request &r) {
  ht_spec from = r.in[0], to = r.out[0];
  if (!same_dims(from, to)) throw Invalid("reorder: " + describe(from) + " to " + describe(to) + ": want the same shape");
  if (from.dtype == HT_OPAQUE) throw Invalid("reorder: an opaque tensor has no other form");
  // Where one side leaves the choice, nothing is moved: both lie alike, if the layout can hold the other type.
  auto alike = [&](uint32_t l) { return l == HT_LAYOUT_ANY || (l & kRegistered && from.dtype != to.dtype) ? HT_LAYOUT_PLAIN : l; };
  if (from.layout == HT_LAYOUT_ANY) from.layout = alike(to.layout);
  if (to.layout == HT_LAYOUT_ANY) to.layout = alike(from.layout);
  bool copy = from.dtype == to.dtype && from.layout == to.layout;
  if (!copy && (from.dtype != HT_F32 && from.dtype != HT_BF16)) throw Unsupported("reorder of " + describe(from) + " to " + describe(to));
  if (!copy && (to.dtype != HT_F32 && to.dtype != HT_BF16)) throw Unsupported("reorder of " + describe(from) + " to " + describe(to));
  set_bytes(from);
  set_bytes(to);
  std::unique_ptr<Kernel> k = copy ? std::make_unique<CopyBytes>() : make_conversion(from, to);
  k->in = {from};
  k->out = {to};
  if (copy) k->inplace = {{0, 0}};
  return k;
}

} // namespace hetero
