// plain_conv_arm64.cc: convolution over plain tensors, as matrix products of gemm_arm64.h.
//
// N is the number of samples. A group has I channels of src (H, W), and O channels of dst (OH, OW). A tap is an element
// of the convolution kernel, and T is the number of taps. There is one product per group:
//
//     forward        dst (O, N·OH·OW)       = weight (O, I·T) · gathered src (I·T, N·OH·OW)
//     diff_weights   diff_weight (O, I·T)   = diff_dst (O, N·OH·OW) · gathered srcᵀ (N·OH·OW, I·T)
//     diff_src       diff_src (I, pixels)   = weight (I, O·taps) · gathered diff_dst (O·taps, pixels)
//
// Gathered src contains, for each channel and tap, the element that each pixel of dst reads through this tap. Outside
// of the image, it is 0. Gathered diff_dst is the same for pixels of diff_src.
//
// With strides (sy, sx), the pixels of diff_src form sy·sx lattices, and each tap affects the pixels of only one
// lattice. Each lattice has a separate product, so that no product multiplies the zeros between the pixels of diff_dst.
#include <algorithm>
#include <vector>

#include "isa_arm64.h"
#include "panels_arm64.h"
#include "plain.h"
#include "plain_types.h"

namespace hetero {

namespace {

struct Extents {
  int64_t n, groups, i, o; // samples, groups, channels of src and dst in a group
  int64_t h, w, oh, ow, kh, kw;
  int64_t stride[2], padding[2], dilation[2];

  Extents(const ht_conv2d_params &p, const ht_spec &src, const ht_spec &weight, const ht_spec &dst)
      : n(src.dims[0]), groups(p.groups), i(weight.dims[1]), o(dst.dims[1] / p.groups), h(src.dims[2]), w(src.dims[3]),
        oh(dst.dims[2]), ow(dst.dims[3]), kh(weight.dims[2]),
        kw(weight.dims[3]), stride{p.stride[0], p.stride[1]}, padding{p.padding[0], p.padding[1]}, dilation{
                                                                                                       p.dilation[0],
                                                                                                       p.dilation[1]} {}
  int64_t taps() const { return kh * kw; }
};

// A tap: its number, and the pixel that it reads, relative to pixel (y·reads[0], x·reads[1]) of the input (Lattice).
struct Offset {
  int64_t tap, y, x;
};

// The output pixels of one product of forward or diff_src, and the taps through which they read the input. The pixels
// form a lattice: every step-th pixel from `first` on.
struct Lattice {
  int64_t rows, columns;     // number of pixels in y and in x
  int64_t first[2], step[2]; // pixel (y, x) is (first + step·(y, x)) of the output
  int64_t reads[2];          // pixel (y, x) reads pixel (reads·(y, x) + offset) of the input
  std::vector<Offset> taps;
};

// The input elements that the columns of a panel read through one tap.
struct Sight {
  int64_t at[kTileColumns]; // index of the element of the group's channel 0; -1 outside of the image
  bool adjacent;            // whether all elements are inside of the image and adjacent
};

// One product of forward or diff_src. `from` is the input and `to` the output. Numbers of channels are those of a
// group.
template <class T, class P> struct Gather final : GemmOperands {
  const Lattice &lattice;
  int64_t groups, from_channels, from_h, from_w, to_channels, to_h, to_w;
  int64_t weight_to, weight_from, taps; // elements from channel to channel of weight; number of taps of the convolution
  const T *from, *weight;
  T *to;
  const float *bias;

  explicit Gather(const Lattice &l) : lattice(l) {}

  void pack_a(int64_t group, int64_t row, int64_t rows, int64_t k, int64_t depth, void *panels) const override {
    const auto count = int64_t(lattice.taps.size());
    const T *weights = weight + group * to_channels * from_channels * taps;
    auto *panel = static_cast<P *>(panels);
    for (int64_t r = row; r < row + rows; r += kTileRows, panel += packed<P>(depth) * kTileRows) {
      const int64_t valid = std::min(kTileRows, row + rows - r);
      if (weight_from == taps && count == taps) { // the products of a row are adjacent
        pack_columns<kTileRows>(panel, 0, depth, valid, weights + r * weight_to + k, weight_to);
        clear_products<kTileRows>(panel, depth, packed<P>(depth));
        continue;
      }
      int64_t channel = k / count, tap = k % count;
      pack_rows<kTileRows, P, T>(panel, depth, [&](int64_t, T *buffer) {
        const T *w = weights + r * weight_to + channel * weight_from + lattice.taps[size_t(tap)].tap;
        for (int64_t j = 0; j < kTileRows; j++) buffer[j] = j < valid ? w[j * weight_to] : T{};
        if (++tap == count) tap = 0, channel++;
        return buffer;
      });
    }
  }

  void pack_b(int64_t group, int64_t column, int64_t columns, int64_t k, int64_t depth, void *panels,
              char *scratch) const override {
    const auto count = int64_t(lattice.taps.size());
    auto *sights = reinterpret_cast<Sight *>(scratch);
    auto *panel = static_cast<P *>(panels);
    const T *channels = from + group * from_channels * from_h * from_w;
    for (int64_t c = column; c < column + columns; c += kTileColumns, panel += packed<P>(depth) * kTileColumns) {
      look(c, std::min(kTileColumns, column + columns - c), sights);
      int64_t channel = k / count, tap = k % count;
      pack_rows<kTileColumns, P, T>(panel, depth, [&](int64_t, T *buffer) -> const T * {
        const T *plane = channels + channel * from_h * from_w;
        const Sight &s = sights[tap];
        if (++tap == count) tap = 0, channel++;
        if (s.adjacent) return plane + s.at[0];
        for (int64_t j = 0; j < kTileColumns; j++) buffer[j] = s.at[j] < 0 ? T{} : plane[s.at[j]];
        return buffer;
      });
    }
  }

  // Lists the pixels that columns [column, column + valid) read through each tap.
  void look(int64_t column, int64_t valid, Sight *sights) const {
    const int64_t pixels = lattice.rows * lattice.columns;
    int64_t n = column / pixels, y = column % pixels / lattice.columns, x = column % lattice.columns;
    for (int64_t j = 0; j < kTileColumns; j++) {
      for (size_t t = 0; t < lattice.taps.size(); t++) {
        const int64_t row = y * lattice.reads[0] + lattice.taps[t].y, at = x * lattice.reads[1] + lattice.taps[t].x;
        const bool inside = j < valid && row >= 0 && row < from_h && at >= 0 && at < from_w;
        sights[t].at[j] = inside ? (n * groups * from_channels * from_h + row) * from_w + at : -1;
        sights[t].adjacent = inside && (j == 0 || (sights[t].adjacent && sights[t].at[j] == sights[t].at[j - 1] + 1));
      }
      if (++x == lattice.columns) {
        x = 0;
        if (++y == lattice.rows) y = 0, n++;
      }
    }
  }

  void store(int64_t group, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *sums,
             int64_t sums_row) const override {
    const int64_t pixels = lattice.rows * lattice.columns;
    for (int64_t j = 0, run; j < columns; j += run) {
      const int64_t n = (column + j) / pixels, y = (column + j) % pixels / lattice.columns,
                    x = (column + j) % lattice.columns;
      run = std::min(columns - j, lattice.columns - x);
      for (int64_t r = 0; r < rows; r++) {
        const int64_t channel = group * to_channels + row + r;
        T *out = to + ((n * groups * to_channels + channel) * to_h + lattice.first[0] + y * lattice.step[0]) * to_w +
                 lattice.first[1] + x * lattice.step[1];
        const float *s = sums + r * sums_row + j, plus = bias ? bias[channel] : 0;
        for (int64_t i = 0; i < run; i++) put(out + i * lattice.step[1], s[i] + plus);
      }
    }
  }
};

// Returns the lattice of the forward pass. It contains all pixels of dst and all taps.
Lattice forward_lattice(const Extents &e) {
  Lattice l{e.oh, e.ow, {0, 0}, {1, 1}, {e.stride[0], e.stride[1]}, {}};
  for (int64_t y = 0; y < e.kh; y++)
    for (int64_t x = 0; x < e.kw; x++)
      l.taps.push_back({y * e.kw + x, y * e.dilation[0] - e.padding[0], x * e.dilation[1] - e.padding[1]});
  return l;
}

// Returns the lattice of diff_src that begins at pixel (y, x). Through tap k, pixel p of diff_src reads this pixel of
// diff_dst, if both coordinates are integers:
//
//     (p + padding - k·dilation) / stride
Lattice diff_lattice(const Extents &e, int64_t y, int64_t x) {
  Lattice l{(e.h - y + e.stride[0] - 1) / e.stride[0],
            (e.w - x + e.stride[1] - 1) / e.stride[1],
            {y, x},
            {e.stride[0], e.stride[1]},
            {1, 1},
            {}};
  for (int64_t ky = 0; ky < e.kh; ky++)
    for (int64_t kx = 0; kx < e.kw; kx++) {
      const int64_t py = y + e.padding[0] - ky * e.dilation[0], px = x + e.padding[1] - kx * e.dilation[1];
      if (py % e.stride[0] == 0 && px % e.stride[1] == 0)
        l.taps.push_back({ky * e.kw + kx, py / e.stride[0], px / e.stride[1]});
    }
  return l;
}

template <class T, class P> struct GatherConv final : Kernel {
  Extents e;
  bool diff; // whether this is diff_src; otherwise it is forward
  std::vector<Lattice> lattices;
  std::vector<Gemm> products;

  GatherConv(const Extents &extents, bool diff_src, int threads) : e(extents), diff(diff_src) {
    if (diff)
      for (int64_t y = 0; y < std::min(e.stride[0], e.h); y++)
        for (int64_t x = 0; x < std::min(e.stride[1], e.w); x++) lattices.push_back(diff_lattice(e, y, x));
    else
      lattices.push_back(forward_lattice(e));
    for (const Lattice &l : lattices) {
      const auto taps = int64_t(l.taps.size());
      products.emplace_back(e.groups, diff ? e.i : e.o, e.n * l.rows * l.columns, (diff ? e.o : e.i) * taps,
                            !std::is_same_v<P, float>, threads, false, taps * int64_t(sizeof(Sight)));
      workspace = std::max(workspace, products.back().workspace());
    }
  }

  void run(const Args &args) override {
    for (size_t i = 0; i < lattices.size(); i++) {
      Gather<T, P> g(lattices[i]);
      g.groups = e.groups;
      g.from_channels = diff ? e.o : e.i, g.from_h = diff ? e.oh : e.h, g.from_w = diff ? e.ow : e.w;
      g.to_channels = diff ? e.i : e.o, g.to_h = diff ? e.h : e.oh, g.to_w = diff ? e.w : e.ow;
      g.taps = e.taps();
      g.weight_to = diff ? e.taps() : e.i * e.taps(), g.weight_from = diff ? e.i * e.taps() : e.taps();
      g.from = static_cast<const T *>(args.in[0]), g.weight = static_cast<const T *>(args.in[1]);
      g.to = static_cast<T *>(args.out[0]);
      g.bias = in.size() == 3 ? static_cast<const float *>(args.in[2]) : nullptr;
      products[i].run(g, args.workspace);
    }
  }
};

// The product of diff_weights for one convolution.
template <class T, class P> struct Outer final : GemmOperands {
  const Extents &e;
  const T *src, *diff_dst;
  float *diff_weight;

  explicit Outer(const Extents &extents) : e(extents) {}

  void pack_a(int64_t group, int64_t row, int64_t rows, int64_t k, int64_t depth, void *panels) const override {
    const int64_t pixels = e.oh * e.ow;
    auto *panel = static_cast<P *>(panels);
    for (int64_t r = row; r < row + rows; r += kTileRows, panel += packed<P>(depth) * kTileRows) {
      for (int64_t at = 0, run; at < depth; at += run) { // pixels of one sample
        const int64_t n = (k + at) / pixels, p = (k + at) % pixels;
        run = std::min(depth - at, pixels - p);
        pack_columns<kTileRows>(panel, at, run, std::min(kTileRows, row + rows - r),
                                diff_dst + ((n * e.groups + group) * e.o + r) * pixels + p, pixels);
      }
      clear_products<kTileRows>(panel, depth, packed<P>(depth));
    }
  }

  void pack_b(int64_t group, int64_t column, int64_t columns, int64_t k, int64_t depth, void *panels,
              char *) const override {
    auto *panel = static_cast<P *>(panels);
    for (int64_t c = column; c < column + columns; c += kTileColumns, panel += packed<P>(depth) * kTileColumns) {
      for (int64_t j = 0; j < kTileColumns; j++) one(group, c + j, c + j < column + columns, k, depth, panel, j);
      clear_products<kTileColumns>(panel, depth, packed<P>(depth));
    }
  }

  // Writes column j of a panel: the elements of one channel of src that pixels [k, k + depth) of dst read through one
  // tap.
  void one(int64_t group, int64_t column, bool valid, int64_t k, int64_t depth, P *panel, int64_t j) const {
    const int64_t channel = column / e.taps(), tap = column % e.taps();
    const int64_t down = tap / e.kw * e.dilation[0] - e.padding[0], right = tap % e.kw * e.dilation[1] - e.padding[1];
    int64_t n = k / (e.oh * e.ow), y = k % (e.oh * e.ow) / e.ow, x = k % e.ow;
    for (int64_t at = 0; at < depth;) { // a row of dst
      const int64_t run = std::min(depth - at, e.ow - x), row = y * e.stride[0] + down;
      const T *line =
          valid && row >= 0 && row < e.h ? src + (((n * e.groups + group) * e.i + channel) * e.h + row) * e.w : nullptr;
      for (const int64_t end = at + run; at < end; at++, x++) {
        const int64_t from = x * e.stride[1] + right;
        put(panel + panel_index<P, kTileColumns>(at, j), line && from >= 0 && from < e.w ? to_f32(line[from]) : 0.0f);
      }
      x = 0;
      if (++y == e.oh) y = 0, n++;
    }
  }

  void store(int64_t group, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *sums,
             int64_t sums_row) const override {
    for (int64_t r = 0; r < rows; r++)
      std::copy_n(sums + r * sums_row, columns, diff_weight + (group * e.o + row + r) * e.i * e.taps() + column);
  }
};

template <class T, class P> struct OuterConv final : Kernel {
  Extents e;
  bool bias;
  Gemm product;

  OuterConv(const Extents &extents, bool with_bias, int threads)
      : e(extents), bias(with_bias),
        product(e.groups, e.o, e.i * e.taps(), e.n * e.oh * e.ow, !std::is_same_v<P, float>, threads, true) {
    workspace = product.workspace();
  }

  void run(const Args &args) override {
    Outer<T, P> o(e);
    o.src = static_cast<const T *>(args.in[0]), o.diff_dst = static_cast<const T *>(args.in[1]);
    o.diff_weight = static_cast<float *>(args.out[0]);
    product.run(o, args.workspace);
    if (!bias) return;
    auto *diff_bias = static_cast<float *>(args.out[1]);
    const int64_t pixels = e.oh * e.ow, channels = e.groups * e.o;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < channels; c++) {
      double sum = 0;
      for (int64_t n = 0; n < e.n; n++)
        for (int64_t p = 0; p < pixels; p++) sum += double(to_f32(o.diff_dst[(n * channels + c) * pixels + p]));
      diff_bias[c] = float(sum);
    }
  }
};

// Creates K<T, P> for the element type of all images and weights.
template <template <class, class> class K>
std::unique_ptr<Kernel> make(const Request &r, const ht_spec &second, const Extents &e, bool flag) {
  std::unique_ptr<Kernel> k;
  if (second.dtype != r.in[0].dtype) throw Unsupported(describe(second) + ": want the type of " + describe(r.in[0]));
  if (r.in[0].dtype == HT_F32)
    k = std::make_unique<K<float, float>>(e, flag, r.threads);
  else if (r.in[0].dtype != HT_BF16)
    throw Unsupported(describe(r.in[0]) + ": want f32 or bf16");
  else if (has_bfmmla())
    k = std::make_unique<K<Bf16, Bf16>>(e, flag, r.threads);
  else
    k = std::make_unique<K<Bf16, float>>(e, flag, r.threads);
  take_plain_operands(*k, r);
  return k;
}

const ht_conv2d_params &params(const Request &r) { return *static_cast<const ht_conv2d_params *>(r.params); }

} // namespace

std::unique_ptr<Kernel> make_plain_conv2d(const Request &r) {
  if (r.out[0].dtype != r.in[0].dtype)
    throw Unsupported(describe(r.out[0]) + ": want the type of " + describe(r.in[0]));
  return make<GatherConv>(r, r.in[1], {params(r), r.in[0], r.in[1], r.out[0]}, false);
}

std::unique_ptr<Kernel> make_plain_conv2d_diff_src(const Request &r) {
  if (r.out[0].dtype != r.in[0].dtype)
    throw Unsupported(describe(r.out[0]) + ": want the type of " + describe(r.in[0]));
  return make<GatherConv>(r, r.in[1], {params(r), r.out[0], r.in[1], r.in[0]}, true);
}

std::unique_ptr<Kernel> make_plain_conv2d_diff_weights(const Request &r) {
  if (r.out[0].dtype != HT_F32) throw Unsupported(describe(r.out[0]) + ": want f32");
  return make<OuterConv>(r, r.in[1], {params(r), r.in[0], r.out[0], r.in[1]}, r.out.size() == 2);
}

} // namespace hetero
