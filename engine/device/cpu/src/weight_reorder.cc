// weight_reorder.cc: recognises reorders of weight blocks, and loops over the blocks.
#include "weight_reorder.h"

#if HT_HAVE_ONEDNN && defined(__x86_64__)

#include "isa.h"
#include "layout.h"

namespace hetero {

namespace {

constexpr uint32_t layout(dnnl_format_tag_t tag) { return HT_LAYOUT_FIRST_PRIVATE + static_cast<uint32_t>(tag); }

using Block = void (*BlockReorder::*)(const float *, void *, int64_t);

struct Rule {
  uint32_t from, to;
  int32_t to_type;
  int64_t width;  // W
  bool exchanged; // whether inputs are the outer dimension in dst's blocks
  Block block;
  int64_t join_outputs = 1, join_inputs = 1; // number of blocks of outputs, and of inputs, that are adjacent in dst
};

constexpr Rule kRules[] = {
    {layout(dnnl_ABcd16b16a), layout(dnnl_ABcd8b16a2b), HT_BF16, 16, false, &BlockReorder::pairs},
    {layout(dnnl_ABcd16b16a), layout(dnnl_ABcd8a16b2a), HT_BF16, 16, false, &BlockReorder::transposed_pairs},
    {layout(dnnl_ABcd16b16a), layout(dnnl_BAcd8a16b2a), HT_BF16, 16, true, &BlockReorder::transposed_pairs},
    {layout(dnnl_ABcd16b16a), layout(dnnl_BAcd16a16b), HT_F32, 16, true, &BlockReorder::transposed},
    {layout(dnnl_ABcd16b16a), layout(dnnl_ABcd16b16a2b), HT_BF16, 16, false, &BlockReorder::pairs, 1, 2},
    {layout(dnnl_ABcd16b16a), layout(dnnl_ABcd16a16b2a), HT_BF16, 16, false, &BlockReorder::transposed_pairs, 2, 1},
    {layout(dnnl_AB16b16a), layout(dnnl_AB8b16a2b), HT_BF16, 16, false, &BlockReorder::pairs},
    {layout(dnnl_AB16b32a), layout(dnnl_AB8b32a2b), HT_BF16, 32, false, &BlockReorder::pairs},
    {layout(dnnl_AB16b64a), layout(dnnl_AB8b64a2b), HT_BF16, 64, false, &BlockReorder::pairs},
};

struct WeightReorder : Kernel {
  int64_t outputs, inputs, taps, width; // number of blocks of outputs and of inputs, number of taps, and W
  int64_t join_outputs, join_inputs;    // as in Rule
  bool exchanged;
  void (*block)(const float *, void *, int64_t);
  int64_t element; // bytes of an element of dst

  void run(const Args &args) override {
    auto *src = static_cast<const float *>(args.in[0]);
    auto *dst = static_cast<char *>(args.out[0]);
    int64_t size = 16 * width, outer = exchanged ? inputs : outputs, inner = exchanged ? outputs : inputs;
    // Loops in the order of dst, because scattered writes cost more than scattered reads.
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t a = 0; a < outer; a++)
      for (int64_t b = 0; b < inner; b++) {
        int64_t o = exchanged ? b : a, i = exchanged ? a : b;
        const float *from = src + (o * inputs + i) * taps * size;
        int64_t joined = join_outputs * join_inputs;
        int64_t to = (o / join_outputs * (inputs / join_inputs) + i / join_inputs) * joined * taps + o % join_outputs +
                     i % join_inputs; // number of the block
        if (joined == 1) to = (a * inner + b) * taps;
        for (int64_t t = 0; t < taps; t++) block(from + t * size, dst + (to + t * joined) * size * element, width);
      }
  }
};

} // namespace

std::unique_ptr<Kernel> make_weight_reorder(const ht_spec &from, const ht_spec &to) {
  if (isa() != Isa::avx512 || from.dtype != HT_F32) return nullptr;
  for (const Rule &rule : kRules) {
    if (rule.from != from.layout || rule.to != to.layout || rule.to_type != to.dtype) continue;
    auto k = std::make_unique<WeightReorder>();
    k->outputs = (from.dims[0] + rule.width - 1) / rule.width;
    k->inputs = (from.dims[1] + 15) / 16;
    k->join_outputs = rule.join_outputs;
    k->join_inputs = rule.join_inputs;
    if (k->outputs % rule.join_outputs || k->inputs % rule.join_inputs) continue;
    k->taps = from.ndim == 4 ? from.dims[2] * from.dims[3] : 1;
    k->width = rule.width;
    k->exchanged = rule.exchanged;
    k->block = avx512_block_reorder().*rule.block;
    k->element = dtype_size(to.dtype);
    return k;
  }
  return nullptr;
}

} // namespace hetero

#else

namespace hetero {

std::unique_ptr<Kernel> make_weight_reorder(const ht_spec &, const ht_spec &) { return nullptr; }

} // namespace hetero

#endif
