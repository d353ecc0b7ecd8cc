// tile_conv.cc: loops over the tiles of convolutions.
#include "tile_conv.h"

#if HT_HAVE_ONEDNN && defined(__x86_64__)

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "layout.h"
#include "tile_product.h"

namespace hetero {

namespace {

constexpr uint32_t kGradient = HT_LAYOUT_FIRST_PRIVATE + dnnl_ABcd16b16a;      // (O, C, taps, 16 c, 16 o)
constexpr uint32_t kInputPairs = HT_LAYOUT_FIRST_PRIVATE + dnnl_ABcd16b16a2b;  // (O/16, C/32, taps, 16 c, 16 o, 2 c)
constexpr uint32_t kOutputPairs = HT_LAYOUT_FIRST_PRIVATE + dnnl_ABcd16a16b2a; // (O/32, C/16, taps, 16 o, 16 c, 2 o)
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kCache = 1 << 20; // bytes: half of the second-level cache of a CPU with AMX

struct Operands {
  ht_spec src, weight, dst;
};

Operands operands_of(const Request &r) {
  if (r.op == HT_CONV2D) return {r.in[0], r.in[1], r.out[0]};
  if (r.op == HT_CONV2D_DIFF_SRC) return {r.out[0], r.in[1], r.in[0]};
  return {r.in[0], r.out[0], r.in[1]};
}

// The rows, pixels and taps of a convolution.
struct Geometry {
  int64_t samples, src_h, src_w, dst_h, dst_w, src_channels, dst_channels, kh, kw;
  ht_conv2d_params p;

  Geometry(const Request &r, const Operands &o)
      : samples(o.src.dims[0]), src_h(o.src.dims[2]), src_w(o.src.dims[3]), dst_h(o.dst.dims[2]), dst_w(o.dst.dims[3]),
        src_channels(o.src.dims[1]), dst_channels(o.dst.dims[1]), kh(o.weight.dims[2]), kw(o.weight.dims[3]),
        p(*static_cast<const ht_conv2d_params *>(r.params)) {
    if (kh * kw > 1 || p.stride[0] > 1 || p.stride[1] > 1 || p.padding[0] > 0 || p.padding[1] > 0) return;
    samples *= src_h * src_w; // every pixel is a row
    src_h = src_w = dst_h = dst_w = 1;
  }
  int64_t taps() const { return kh * kw; }
  int64_t src_pixels() const { return src_h * src_w; }
  int64_t dst_pixels() const { return dst_h * dst_w; }
  // Returns the src pixel that a dst pixel reads through a tap, or -1 for padding.
  int64_t source(int64_t dst, int64_t tap) const {
    const int64_t y = dst / dst_w * p.stride[0] - p.padding[0] + tap / kw * p.dilation[0];
    const int64_t x = dst % dst_w * p.stride[1] - p.padding[1] + tap % kw * p.dilation[1];
    return y >= 0 && y < src_h && x >= 0 && x < src_w ? y * src_w + x : -1;
  }
};

int64_t ceil(int64_t n, int64_t of) { return (n + of - 1) / of; }

// Computes forward and diff_src.
struct TileGather : Kernel {
  const TileTable &tiles = *tile_table();
  int64_t samples, in_pixels, in_channels, out_pixels, out_channels, num_taps;
  // Elements to the next 16 outputs, to the next 32 outputs, and to the next block of inputs.
  int64_t weight_next, weight_pair, weight_block;
  std::vector<TileTap> taps;            // taps of all output pixels, in the order of pixels
  std::vector<int64_t> first;           // index of the first tap of each output pixel; the last entry is the end
  int64_t strip, strips, bands, groups; // samples of a strip; numbers of strips, bands, groups of outputs

  bool few_weights; // whether the weights of a task fit into the second-level cache

  // A task computes some samples, pixels and outputs. If its weights fit into the second-level cache, it reads them
  // once for each pair of row tiles. Otherwise its part of the input fits into the cache, and it reads this part once
  // for each pair of output tiles.
  void divide(int threads) {
    const int64_t sample = in_pixels * in_channels * 2;
    strip = std::max(kPair, std::min(kCache / sample, samples) / kPair * kPair);
    strips = std::max<int64_t>(1, samples / strip); // the last strip also has the remaining samples
    bands = std::clamp<int64_t>(ceil(std::min(strip, samples) * sample, kCache), 1, out_pixels);
    groups = std::clamp<int64_t>(ceil(4 * threads, strips * bands), 1, out_channels / kPair);
    few_weights = num_taps * in_channels * (out_channels / groups) * 2 <= kCache / 2;
  }

  void run(const Args &args) override {
#pragma omp parallel
    {
      tiles.begin();
#pragma omp for collapse(3) schedule(static) nowait
      for (int64_t s = 0; s < strips; s++)
        for (int64_t b = 0; b < bands; b++)
          for (int64_t g = 0; g < groups; g++) task(args, s, b, g);
      tiles.end();
    }
  }

  void task(const Args &args, int64_t s, int64_t band, int64_t group) const {
    const auto *in = static_cast<const uint16_t *>(args.in[0]), *weight = static_cast<const uint16_t *>(args.in[1]);
    const auto *bias = this->in.size() == 3 ? static_cast<const float *>(args.in[2]) : nullptr;
    auto *out = static_cast<uint16_t *>(args.out[0]);
    const int64_t from = s * strip, to = s + 1 == strips ? samples : from + strip;
    const int64_t pairs = out_channels / kPair;
    GatherTiles t;
    t.in_row = in_pixels * in_channels;
    t.out_row = out_pixels * out_channels;
    t.blocks = in_channels / kTileSum;
    t.weight_next = weight_next;
    t.weight_block = weight_block;
    const int64_t first_pair = pairs * group / groups, last_pair = pairs * (group + 1) / groups;
    const auto rows_of = [&](int64_t pair, int64_t pixel, int64_t n) {
      const int row_tiles = samples >= kPair && to - n > kTileSide ? 2 : 1;
      const int64_t rows = row_tiles * kTileSide, start = std::min(n, samples - rows);
      t.taps = taps.data() + first[static_cast<size_t>(pixel)];
      t.num_taps = first[static_cast<size_t>(pixel) + 1] - first[static_cast<size_t>(pixel)];
      t.weight = weight + pair * weight_pair;
      t.bias = bias ? bias + pair * kPair : nullptr;
      t.skip = n - start; // the last tile repeats rows, so that it is whole
      t.in = in + start * t.in_row;
      t.out = out + start * t.out_row + pixel * out_channels + pair * kPair;
      tiles.gather[row_tiles - 1](t);
      return start + rows;
    };
    const int64_t first_pixel = out_pixels * band / bands, last_pixel = out_pixels * (band + 1) / bands;
    if (few_weights) {
      for (int64_t pixel = first_pixel; pixel < last_pixel; pixel++)
        for (int64_t n = from, next = n; n < to; n = next)
          for (int64_t pair = first_pair; pair < last_pair; pair++) next = rows_of(pair, pixel, n);
      return;
    }
    for (int64_t pair = first_pair; pair < last_pair; pair++)
      for (int64_t pixel = first_pixel; pixel < last_pixel; pixel++)
        for (int64_t n = from; n < to;) n = rows_of(pair, pixel, n);
  }
};

// Computes diff_weights. Both images are packed, so that samples are the innermost dimension. A step processes a chunk
// of samples and a band of dst pixels. In a step, the data of two src tiles and two dst tiles fit into the second-level
// cache. If there are few tiles, the steps are divided into parts, whose sums are added in order.
struct TileOuter : Kernel {
  const TileTable &tiles = *tile_table();
  int64_t samples, image_pixels, src_channels, dst_channels, src_pixels, dst_pixels, num_taps;
  int64_t chunk, bands, parts; // samples of a chunk; numbers of bands and parts
  std::vector<int32_t> seen;   // pixels of src that any tap reads
  std::vector<TileRun> runs;
  std::vector<int64_t> first; // index of the first run of each (band, tap); the last entry is the end

  int64_t chunks() const { return ceil(samples, chunk); }
  int64_t chunk_samples(int64_t c) const { return std::min(chunk, samples - c * chunk); }
  int64_t vectors(int64_t c) const { return ceil(chunk_samples(c), kTileSum); }
  // Returns the number of elements of the packed images before chunk c.
  int64_t packed_before(int64_t c, int64_t channels, int64_t pixels) const {
    return std::min(c * chunk, up(samples, kTileSum)) * channels * pixels;
  }
  int64_t packed(int64_t channels, int64_t pixels) const { return packed_before(chunks(), channels, pixels); }
  int64_t weights() const { return src_channels * dst_channels * num_taps; }

  void run(const Args &args) override {
    auto *a = static_cast<uint16_t *>(args.workspace), *b = a + packed(src_channels, src_pixels);
    auto *sums = reinterpret_cast<float *>(b + packed(dst_channels, dst_pixels));
    const int64_t all = chunks(), vectors_all = ceil(samples, kTileSum);
    const int64_t src_pairs = src_channels / kPair, dst_pairs = dst_channels / kPair;
    const int64_t rows = vectors_all * (src_pixels + dst_pixels);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
      const int64_t v = i / (src_pixels + dst_pixels), p = i % (src_pixels + dst_pixels);
      if (p < src_pixels)
        pack(tiles.pack_left, args.in[0], a, v, p, seen[static_cast<size_t>(p)], image_pixels, src_pixels,
             src_channels);
      else
        pack(tiles.pack_right, args.in[1], b, v, p - src_pixels, p - src_pixels, dst_pixels, dst_pixels, dst_channels);
    }
    const int64_t steps = all * bands;
#pragma omp parallel
    {
      tiles.begin();
      // A thread's tiles are consecutive, so most of them use the same tiles of diff_dst.
      const int64_t tasks = parts * dst_pairs * src_pairs, threads = omp_get_num_threads(), t = omp_get_thread_num();
      for (int64_t i = tasks * t / threads, end = tasks * (t + 1) / threads; i < end;) {
        const int64_t line = i / src_pairs, stop = std::min(end, (line + 1) * src_pairs);
        const int64_t part = line / dst_pairs, pair = line % dst_pairs;
        float *to = part ? sums + (part - 1) * weights() : static_cast<float *>(args.out[0]);
        const int64_t from = steps * part / parts;
        for (int64_t s = from; s < steps * (part + 1) / parts; s++)
          for (int64_t j = i; j < stop; j++) tile(a, b, s / bands, s % bands, j % src_pairs, pair, to, s > from);
        i = stop;
      }
      tiles.end();
    }
    if (parts > 1) add(static_cast<float *>(args.out[0]), sums);
  }

  void pack(void (*kernel)(const uint16_t *, int64_t, int64_t, uint16_t *const[2]), const void *image, uint16_t *to,
            int64_t v, int64_t at, int64_t pixel, int64_t all_pixels, int64_t pixels, int64_t channels) const {
    const int64_t c = v * kTileSum / chunk, within = v - c * chunk / kTileSum;
    const auto *from = static_cast<const uint16_t *>(image) + (v * kTileSum * all_pixels + pixel) * channels;
    to += packed_before(c, channels, pixels) + (at * vectors(c) + within) * kTileElements;
    const int64_t block = pixels * vectors(c) * kTileElements; // distance between blocks of 16 channels
    const int64_t count = std::min(kTileSum, samples - v * kTileSum);
    for (int64_t channel = 0; channel < channels; channel += kPair) {
      uint16_t *dst[2] = {to + channel / kTileSide * block, to + (channel / kTileSide + 1) * block};
      kernel(from + channel, all_pixels * channels, count, dst);
    }
  }

  void tile(const uint16_t *a, const uint16_t *b, int64_t c, int64_t band, int64_t src, int64_t dst, float *out,
            bool add) const {
    OuterTiles t;
    t.vectors = vectors(c);
    t.add = add;
    const int64_t a_block = src_pixels * t.vectors * kTileElements, b_block = dst_pixels * t.vectors * kTileElements;
    const int64_t src_blocks = src_channels / kTileSide, sum = kTileSide * kTileSide;
    t.a[0] = a + packed_before(c, src_channels, src_pixels) + 2 * src * a_block;
    t.a[1] = t.a[0] + a_block;
    t.b[0] = b + packed_before(c, dst_channels, dst_pixels) + 2 * dst * b_block;
    t.b[1] = t.b[0] + b_block;
    for (int64_t k = 0; k < num_taps; k++) {
      const auto at = static_cast<size_t>(band * num_taps + k);
      t.runs = runs.data() + first[at];
      t.num_runs = first[at + 1] - first[at];
      if (add && !t.num_runs) continue;
      for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 2; j++)
          t.out[i][j] = out + (((2 * dst + j) * src_blocks + 2 * src + i) * num_taps + k) * sum;
      tiles.outer(t);
    }
  }

  void add(float *to, const float *sums) const {
    constexpr int64_t block = 4096; // elements: enough work for a thread
    const int64_t n = weights(), blocks = ceil(n, block);
#pragma omp parallel for schedule(static) if (blocks > 1)
    for (int64_t i = 0; i < blocks; i++)
      for (int64_t part = 0; part + 1 < parts; part++)
        for (int64_t e = i * block; e < std::min(n, (i + 1) * block); e++) to[e] += sums[part * n + e];
  }
};

std::unique_ptr<Kernel> make_gather(const Request &r, const Geometry &g) {
  const bool forward = r.op == HT_CONV2D;
  auto k = std::make_unique<TileGather>();
  k->samples = g.samples;
  k->in_pixels = forward ? g.src_pixels() : g.dst_pixels();
  k->in_channels = forward ? g.src_channels : g.dst_channels;
  k->out_pixels = forward ? g.dst_pixels() : g.src_pixels();
  k->out_channels = forward ? g.dst_channels : g.src_channels;
  k->num_taps = g.taps();
  const int64_t line = g.taps() * kTileElements; // all taps of a tile of weights
  k->weight_next = forward ? g.src_channels / kTileSum * line : line;
  k->weight_pair = 2 * k->weight_next;
  k->weight_block = forward ? line : g.src_channels / kTileSide * line;
  std::vector<std::vector<TileTap>> taps(static_cast<size_t>(k->out_pixels));
  for (int64_t tap = 0; tap < g.taps(); tap++)
    for (int64_t dst = 0; dst < g.dst_pixels(); dst++)
      if (const int64_t src = g.source(dst, tap); src >= 0)
        taps[static_cast<size_t>(forward ? dst : src)].push_back(
            {(forward ? src : dst) * k->in_channels, tap * kTileElements});
  for (const auto &list : taps) {
    k->first.push_back(static_cast<int64_t>(k->taps.size()));
    k->taps.insert(k->taps.end(), list.begin(), list.end());
  }
  k->first.push_back(static_cast<int64_t>(k->taps.size()));
  k->divide(r.threads);
  k->in = {with_layout(r.in[0], kNhwc), with_layout(r.in[1], forward ? kInputPairs : kOutputPairs)};
  if (r.in.size() == 3) k->in.push_back(with_layout(r.in[2], HT_LAYOUT_PLAIN));
  k->out = {with_layout(r.out[0], kNhwc)};
  return k;
}

std::unique_ptr<Kernel> make_outer(const Request &r, const Geometry &g) {
  auto k = std::make_unique<TileOuter>();
  k->samples = g.samples;
  k->image_pixels = g.src_pixels();
  k->src_channels = g.src_channels;
  k->dst_channels = g.dst_channels;
  k->dst_pixels = g.dst_pixels();
  k->num_taps = g.taps();
  std::vector<int32_t> place(static_cast<size_t>(g.src_pixels()), -1); // index among the pixels that are read
  for (int64_t tap = 0; tap < g.taps(); tap++)
    for (int64_t dst = 0; dst < g.dst_pixels(); dst++)
      if (const int64_t src = g.source(dst, tap); src >= 0) place[static_cast<size_t>(src)] = 0;
  for (int32_t p = 0; p < g.src_pixels(); p++)
    if (int32_t &at = place[static_cast<size_t>(p)]; at == 0) {
      at = static_cast<int32_t>(k->seen.size());
      k->seen.push_back(p);
    }
  k->src_pixels = static_cast<int64_t>(k->seen.size());
  const int64_t vector = 2 * (k->src_pixels + k->dst_pixels) * kTileBytes; // bytes of two src tiles and two dst tiles
  k->chunk = std::clamp<int64_t>(kCache / vector, 1, ceil(g.samples, kTileSum)) * kTileSum;
  k->bands = std::clamp<int64_t>(ceil(vector, kCache), 1, g.dst_h);
  for (int64_t band = 0; band < k->bands; band++)
    for (int64_t tap = 0; tap < g.taps(); tap++) {
      const auto start = k->runs.size();
      k->first.push_back(static_cast<int64_t>(start));
      for (int64_t dst = g.dst_h * band / k->bands * g.dst_w; dst < g.dst_h * (band + 1) / k->bands * g.dst_w; dst++) {
        const int64_t source = g.source(dst, tap);
        if (source < 0) continue;
        const int32_t src = place[static_cast<size_t>(source)], at = static_cast<int32_t>(dst);
        TileRun *last = k->runs.size() > start ? &k->runs.back() : nullptr;
        if (last && last->a + last->pixels == src && last->b + last->pixels == at)
          last->pixels++;
        else
          k->runs.push_back({src, at, 1});
      }
    }
  k->first.push_back(static_cast<int64_t>(k->runs.size()));
  const int64_t tasks = k->src_channels / kPair * (k->dst_channels / kPair);
  k->parts = tasks >= 2 * r.threads ? 1 : std::min(k->chunks() * k->bands, ceil(2 * r.threads, tasks));
  k->workspace = 2 * (k->packed(k->src_channels, k->src_pixels) + k->packed(k->dst_channels, k->dst_pixels)) +
                 4 * (k->parts - 1) * k->weights();
  k->in = {with_layout(r.in[0], kNhwc), with_layout(r.in[1], kNhwc)};
  k->out = {with_layout(r.out[0], kGradient)};
  return k;
}

// Returns whether the operands of the request may have the layouts of these kernels.
bool fits(const Request &r, const Operands &o) {
  if (!tile_table() || o.src.dtype != HT_BF16 || o.dst.dtype != HT_BF16) return false;
  if (static_cast<const ht_conv2d_params *>(r.params)->groups != 1) return false;
  if (o.src.dims[1] % kPair || o.dst.dims[1] % kPair) return false;
  auto image = [](const ht_spec &s, bool output) {
    return s.layout == kNhwc || s.layout == HT_LAYOUT_ANY || (!output && s.layout == HT_LAYOUT_PLAIN);
  };
  if (!image(o.src, r.op == HT_CONV2D_DIFF_SRC) || !image(o.dst, r.op == HT_CONV2D)) return false;
  if (r.op == HT_CONV2D_DIFF_WEIGHTS)
    return r.out.size() == 1 && (o.weight.layout == kGradient || o.weight.layout == HT_LAYOUT_ANY);
  return o.weight.dtype == HT_BF16;
}

} // namespace

std::unique_ptr<Kernel> make_tile_conv(const Request &r) {
  const Operands o = operands_of(r);
  if (!fits(r, o)) return nullptr;
  const Geometry g(r, o);
  if (g.samples < kTileSide) return nullptr; // a tile would have unused rows
  return r.op == HT_CONV2D_DIFF_WEIGHTS ? make_outer(r, g) : make_gather(r, g);
}

} // namespace hetero

#else

namespace hetero {

std::unique_ptr<Kernel> make_tile_conv(const Request &) { return nullptr; }

} // namespace hetero

#endif
