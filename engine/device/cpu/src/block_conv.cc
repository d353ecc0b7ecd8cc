// block_conv.cc: decides whether the kernels of block_conv.h or those of oneDNN compute a small convolution, and loops
// over register tiles.
#include "block_conv.h"

#if HT_HAVE_ONEDNN && defined(__x86_64__)

#include <omp.h>

#include <algorithm>
#include <vector>

#include "isa.h"
#include "layout.h"

namespace hetero {

namespace {

constexpr uint32_t kOutputsLast = HT_LAYOUT_FIRST_PRIVATE + dnnl_ABcd16b16a;        // (O, C, taps, 16 c, 16 o)
constexpr uint32_t kChannelsLast = HT_LAYOUT_FIRST_PRIVATE + dnnl_BAcd16a16b;       // (C, O, taps, 16 o, 16 c)
constexpr uint32_t kOutputsLastPairs = HT_LAYOUT_FIRST_PRIVATE + dnnl_ABcd8b16a2b;  // (O, C, taps, 8 c, 16 o, 2 c)
constexpr uint32_t kChannelsLastPairs = HT_LAYOUT_FIRST_PRIVATE + dnnl_BAcd8a16b2a; // (C, O, taps, 8 o, 16 c, 2 o)

// A dst pixel, and the src pixel that it reads through one tap.
struct Sight {
  int32_t tap, src, dst;
};

// Returns all pairs, ordered by tap, then by dst pixel.
std::vector<Sight> sights(const ht_conv2d_params &p, const ht_spec &src, const ht_spec &weight, const ht_spec &dst) {
  std::vector<Sight> list;
  auto h = src.dims[2], w = src.dims[3], oh = dst.dims[2], ow = dst.dims[3], kh = weight.dims[2], kw = weight.dims[3];
  for (int64_t ky = 0; ky < kh; ky++)
    for (int64_t kx = 0; kx < kw; kx++)
      for (int64_t oy = 0; oy < oh; oy++)
        for (int64_t ox = 0; ox < ow; ox++) {
          int64_t y = oy * p.stride[0] - p.padding[0] + ky * p.dilation[0],
                  x = ox * p.stride[1] - p.padding[1] + kx * p.dilation[1];
          if (y >= 0 && y < h && x >= 0 && x < w)
            list.push_back({static_cast<int32_t>(ky * kw + kx), static_cast<int32_t>(y * w + x),
                            static_cast<int32_t>(oy * ow + ox)});
        }
  return list;
}

BlockKernels kernels_for(int32_t dtype) {
  return dtype == HT_F32 ? avx512_block_kernels() : avx512bf16_block_kernels();
}

// Computes forward and diff_src.
struct GatherConv : Kernel {
  BlockKernels tiles;
  int64_t samples, in_blocks, in_pixels, out_blocks, out_pixels, num_taps, element;
  std::vector<Tap> taps;      // taps of all output pixels, in the order of pixels
  std::vector<int64_t> first; // index in taps of the first tap of each output pixel; the last entry is the end

  void run(const Args &args) override {
    int64_t pairs = (out_blocks + 1) / 2;
    // The samples are divided into strips: enough tasks for all threads, but so few that each task reuses its weights.
    int64_t tasks = pairs * out_pixels, wanted = 4 * omp_get_max_threads();
    int64_t strips = std::clamp<int64_t>((wanted + tasks - 1) / tasks, 1, (samples + kMaxRows - 1) / kMaxRows);
    int64_t strip = ((samples + strips - 1) / strips + kMaxRows - 1) / kMaxRows * kMaxRows;
    strips = (samples + strip - 1) / strip;
#pragma omp parallel for collapse(3) schedule(static)
    for (int64_t pair = 0; pair < pairs; pair++)
      for (int64_t pixel = 0; pixel < out_pixels; pixel++)
        for (int64_t s = 0; s < strips; s++) task(args, 2 * pair, pixel, s * strip, std::min(samples, (s + 1) * strip));
  }

  void task(const Args &args, int64_t out, int64_t pixel, int64_t from, int64_t to) const {
    GatherTile t;
    t.in_row = in_blocks * in_pixels * kBlock;
    t.in_block = in_pixels * kBlock;
    t.out_row = out_blocks * out_pixels * kBlock;
    t.out_block = out_pixels * kBlock;
    t.weight_in = num_taps * kTile;
    t.weight_out = in_blocks * t.weight_in;
    t.weight = static_cast<const char *>(args.in[1]) + out * t.weight_out * element;
    t.bias = in.size() == 3 ? static_cast<const float *>(args.in[2]) + out * kBlock : nullptr;
    t.taps = taps.data() + first[static_cast<size_t>(pixel)];
    t.num_taps = first[static_cast<size_t>(pixel) + 1] - first[static_cast<size_t>(pixel)];
    t.in_blocks = in_blocks;
    int outs = out + 1 < out_blocks ? 1 : 0;
    for (int64_t n = from; n < to; n += kMaxRows) {
      int64_t rows = std::min<int64_t>(kMaxRows, to - n);
      t.in = static_cast<const char *>(args.in[0]) + n * t.in_row * element;
      t.out = static_cast<char *>(args.out[0]) + ((n * out_blocks + out) * out_pixels + pixel) * kBlock * element;
      tiles.gather[rows - 1][outs](t);
    }
  }
};

// Computes diff_weights, in chunks of samples. A chunk is so small that one block of src and two blocks of diff_dst fit
// into the second-level cache. Chunks are packed, so that the samples are the innermost dimension. f32 images with long
// enough runs are read without packing.
struct OuterConv : Kernel {
  BlockKernels tiles;
  bool direct; // whether images are read without packing
  int64_t samples, src_blocks, src_pixels, dst_blocks, dst_pixels, num_taps, element;
  int64_t chunk;             // samples of a chunk
  std::vector<int32_t> seen; // pixels of src that any tap reads; all pixels if nothing is packed
  int64_t image_pixels;
  std::vector<int32_t> all; // all pixels of diff_dst
  std::vector<Run> runs;
  std::vector<int64_t> first; // index of the first run of each tap; the last entry is the number of runs

  int64_t chunks() const { return (samples + chunk - 1) / chunk; }
  int64_t chunk_samples(int64_t i) const { return std::min(chunk, samples - i * chunk); }
  int64_t vectors(int64_t i) const { return (chunk_samples(i) + tiles.group - 1) / tiles.group; }
  int64_t vector_bytes() const { return kBlock * tiles.group * element; }
  // Returns the number of bytes of the packed images of all chunks before chunk i.
  int64_t packed_before(int64_t i, int64_t blocks, int64_t pixels) const {
    return i * (chunk / tiles.group) * blocks * pixels * vector_bytes();
  }
  int64_t packed(int64_t blocks, int64_t pixels) const {
    int64_t last = chunks() - 1;
    return packed_before(last, blocks, pixels) + vectors(last) * blocks * pixels * vector_bytes();
  }

  void run(const Args &args) override {
    auto *a = static_cast<char *>(args.workspace), *b = a + packed(src_blocks, src_pixels);
    int64_t pairs = (dst_blocks + 1) / 2;
    int64_t packs = direct ? 0 : chunks();
#pragma omp parallel for collapse(2) schedule(static) if (packs > 0)
    for (int64_t c = 0; c < packs; c++)
      for (int64_t block = 0; block < src_blocks + dst_blocks; block++) {
        if (block < src_blocks)
          pack(args.in[0], a, c, block, src_blocks, image_pixels, seen);
        else
          pack(args.in[1], b, c, block - src_blocks, dst_blocks, dst_pixels, all);
      }
#pragma omp parallel
    {
      // A thread's tiles are consecutive, so most of them use the same blocks of diff_dst.
      int64_t tasks = pairs * src_blocks, threads = omp_get_num_threads(), t = omp_get_thread_num();
      for (int64_t i = tasks * t / threads, end = tasks * (t + 1) / threads; i < end;) {
        int64_t pair = i / src_blocks, stop = std::min(end, (pair + 1) * src_blocks);
        for (int64_t c = 0; c < chunks(); c++)
          for (int64_t j = i; j < stop; j++) tile(args, a, b, c, j % src_blocks, 2 * pair);
        i = stop;
      }
    }
  }

  void pack(const void *image, char *to, int64_t c, int64_t block, int64_t blocks, int64_t pixels,
            const std::vector<int32_t> &wanted) const {
    auto *from = static_cast<const char *>(image) + (c * chunk * blocks + block) * pixels * kBlock * element;
    auto count = static_cast<int64_t>(wanted.size());
    to += packed_before(c, blocks, count) + block * count * vectors(c) * vector_bytes();
    for (int64_t i = 0; i < count; i++)
      tiles.pack(from + wanted[static_cast<size_t>(i)] * kBlock * element, blocks * pixels * kBlock, chunk_samples(c),
                 to + i * vectors(c) * vector_bytes());
  }

  void tile(const Args &args, const char *a, const char *b, int64_t c, int64_t src, int64_t dst) const {
    OuterTile t;
    t.samples = direct ? chunk_samples(c) : 1;
    t.a_sample = src_blocks * image_pixels;
    t.b_sample = dst_blocks * dst_pixels;
    t.vectors = direct ? 1 : vectors(c);
    int64_t src_bytes = src_pixels * t.vectors * vector_bytes(), dst_bytes = dst_pixels * t.vectors * vector_bytes();
    if (direct) {
      a = static_cast<const char *>(args.in[0]) + c * chunk * t.a_sample * vector_bytes();
      b = static_cast<const char *>(args.in[1]) + c * chunk * t.b_sample * vector_bytes();
    } else {
      a += packed_before(c, src_blocks, src_pixels);
      b += packed_before(c, dst_blocks, dst_pixels);
    }
    t.a = a + src * src_bytes;
    auto *b0 = b + dst * dst_bytes;
    bool two = dst + 1 < dst_blocks;
    auto *out = static_cast<float *>(args.out[0]);
    t.b0 = b0;
    t.b1 = two ? b0 + dst_bytes : nullptr;
    t.add = c > 0;
    for (int64_t k = 0; k < num_taps; k++) {
      t.runs = runs.data() + first[static_cast<size_t>(k)];
      t.num_runs = first[static_cast<size_t>(k) + 1] - first[static_cast<size_t>(k)];
      t.out0 = out + ((dst * src_blocks + src) * num_taps + k) * kTile;
      t.out1 = two ? t.out0 + src_blocks * num_taps * kTile : nullptr;
      tiles.outer(t);
    }
  }
};

struct Operands {
  ht_spec src, weight, dst;
};

Operands operands_of(const Request &r) {
  if (r.op == HT_CONV2D) return {r.in[0], r.in[1], r.out[0]};
  if (r.op == HT_CONV2D_DIFF_SRC) return {r.out[0], r.in[1], r.in[0]};
  return {r.in[0], r.out[0], r.in[1]};
}

int64_t pixels_of(const ht_spec &s) { return s.dims[2] * s.dims[3]; }

std::unique_ptr<Kernel> make_gather(const Request &r, const Operands &o) {
  bool forward = r.op == HT_CONV2D, f32 = o.src.dtype == HT_F32;
  const ht_spec &in = forward ? o.src : o.dst, &out = forward ? o.dst : o.src;
  auto k = std::make_unique<GatherConv>();
  k->tiles = kernels_for(o.src.dtype);
  k->element = dtype_size(o.src.dtype);
  k->samples = in.dims[0];
  k->in_blocks = in.dims[1] / kBlock;
  k->in_pixels = pixels_of(in);
  k->out_blocks = out.dims[1] / kBlock;
  k->out_pixels = pixels_of(out);
  k->num_taps = pixels_of(o.weight);
  auto all = sights(*static_cast<const ht_conv2d_params *>(r.params), o.src, o.weight, o.dst);
  for (int32_t pixel = 0; pixel < k->out_pixels; pixel++) {
    k->first.push_back(static_cast<int64_t>(k->taps.size()));
    for (const Sight &s : all)
      if ((forward ? s.dst : s.src) == pixel) k->taps.push_back({s.tap, forward ? s.src : s.dst});
  }
  k->first.push_back(static_cast<int64_t>(k->taps.size()));
  uint32_t weight = forward ? (f32 ? kOutputsLast : kOutputsLastPairs) : (f32 ? kChannelsLast : kChannelsLastPairs);
  k->in = {with_layout(r.in[0], kNChw16c), with_layout(r.in[1], weight)};
  if (r.in.size() == 3) k->in.push_back(with_layout(r.in[2], HT_LAYOUT_PLAIN));
  k->out = {with_layout(r.out[0], kNChw16c)};
  return k;
}

std::unique_ptr<Kernel> make_outer(const Request &r, const Operands &o) {
  auto k = std::make_unique<OuterConv>();
  k->tiles = kernels_for(o.src.dtype);
  k->element = dtype_size(o.src.dtype);
  k->samples = o.src.dims[0];
  k->src_blocks = o.src.dims[1] / kBlock;
  k->image_pixels = pixels_of(o.src);
  k->dst_blocks = o.dst.dims[1] / kBlock;
  k->dst_pixels = pixels_of(o.dst);
  k->num_taps = pixels_of(o.weight);
  auto list = sights(*static_cast<const ht_conv2d_params *>(r.params), o.src, o.weight, o.dst);
  size_t breaks = 1; // number of runs of contiguous pixels
  for (size_t i = 1; i < list.size(); i++)
    breaks +=
        list[i].tap != list[i - 1].tap || list[i].src != list[i - 1].src + 1 || list[i].dst != list[i - 1].dst + 1;
  // The start of a run takes as long as one pixel, so short runs do not pay.
  k->direct = o.src.dtype == HT_F32 && list.size() >= 6 * breaks;
  std::vector<int32_t> place(static_cast<size_t>(k->image_pixels), k->direct ? 0 : -1); // index among the read pixels
  for (const Sight &s : list) place[static_cast<size_t>(s.src)] = 0;
  for (int32_t p = 0; p < k->image_pixels; p++)
    if (int32_t &at = place[static_cast<size_t>(p)]; at == 0) {
      at = static_cast<int32_t>(k->seen.size());
      k->seen.push_back(p);
    }
  k->src_pixels = static_cast<int64_t>(k->seen.size());
  for (int32_t p = 0; p < k->dst_pixels; p++) k->all.push_back(p);
  constexpr int64_t cache = 512 << 10; // bytes: half of a typical second-level cache
  int64_t sample = (k->src_pixels + 2 * k->dst_pixels) * kBlock * k->element;
  k->chunk = std::max<int64_t>(cache / sample, 16) / k->tiles.group * k->tiles.group;
  k->chunk = std::min(k->chunk, (k->samples + k->tiles.group - 1) / k->tiles.group * k->tiles.group);
  int32_t tap = -1;
  for (const Sight &s : list) {
    int32_t src = place[static_cast<size_t>(s.src)];
    bool fresh = s.tap != tap;
    for (; tap < s.tap; tap++) k->first.push_back(static_cast<int64_t>(k->runs.size()));
    Run *last = fresh ? nullptr : &k->runs.back();
    if (last && last->a + last->pixels == src && last->b + last->pixels == s.dst)
      last->pixels++;
    else
      k->runs.push_back({src, s.dst, 1});
  }
  while (static_cast<int64_t>(k->first.size()) <= k->num_taps) k->first.push_back(static_cast<int64_t>(k->runs.size()));
  if (!k->direct) k->workspace = k->packed(k->src_blocks, k->src_pixels) + k->packed(k->dst_blocks, k->dst_pixels);
  k->in = {with_layout(r.in[0], kNChw16c), with_layout(r.in[1], kNChw16c)};
  k->out = {with_layout(r.out[0], kOutputsLast)};
  return k;
}

// Returns whether the operands of the request may have the layouts of these kernels.
bool fits(const Request &r, const Operands &o) {
  bool f32 = o.src.dtype == HT_F32;
  if (isa() != Isa::avx512 || (!f32 && (o.src.dtype != HT_BF16 || !has_avx512bf16()))) return false;
  if (o.dst.dtype != o.src.dtype || static_cast<const ht_conv2d_params *>(r.params)->groups != 1) return false;
  if (o.src.dims[1] % kBlock || o.dst.dims[1] % kBlock) return false;
  auto image = [](const ht_spec &s, bool output) {
    return s.layout == kNChw16c || s.layout == HT_LAYOUT_ANY || (!output && s.layout == HT_LAYOUT_PLAIN);
  };
  if (!image(o.src, r.op == HT_CONV2D_DIFF_SRC) || !image(o.dst, r.op == HT_CONV2D)) return false;
  return r.op != HT_CONV2D_DIFF_WEIGHTS || (r.out.size() == 1 && o.weight.layout == kOutputsLast);
}

// Returns whether these kernels are faster than oneDNN 3.2. The limits were measured on Zen 5 with the images of
// ResNet-50: batches of 8 at 224 pixels, and batches of 128 at 32 pixels. If both are equally fast, the result is true,
// because threads wait in spinning barriers in oneDNN's weight gradients. If another process needs a core, such a
// barrier can block for a scheduler tick.
bool pays(const Request &r, const Operands &o) {
  const auto &p = *static_cast<const ht_conv2d_params *>(r.params);
  bool window = pixels_of(o.weight) > 1, strided = p.stride[0] > 1 || p.stride[1] > 1, f32 = o.src.dtype == HT_F32;
  if (o.src.dims[0] < 8) return false; // a register tile would have unused rows
  int64_t limit;                       // largest number of dst pixels
  switch (r.op) {
  case HT_CONV2D: limit = window ? 4 : 1; break;
  case HT_CONV2D_DIFF_SRC: limit = !window ? 1 : strided || !f32 ? 196 : 4; break;
  default:
    limit = f32 ? (window && !strided ? 784 : 196) : (window || strided ? 784 : 196);
    // There must be at least one tile per thread. A tile reads one block of src and two blocks of dst.
    if ((o.dst.dims[1] / kBlock + 1) / 2 * (o.src.dims[1] / kBlock) < 2 * r.threads) return false;
  }
  return pixels_of(o.dst) <= limit;
}

} // namespace

std::unique_ptr<Kernel> make_block_conv(const Request &r) {
  Operands o = operands_of(r);
  if (!fits(r, o) || !pays(r, o)) return nullptr;
  return r.op == HT_CONV2D_DIFF_WEIGHTS ? make_outer(r, o) : make_gather(r, o);
}

} // namespace hetero

#else

namespace hetero {

std::unique_ptr<Kernel> make_block_conv(const Request &) { return nullptr; }

} // namespace hetero

#endif
