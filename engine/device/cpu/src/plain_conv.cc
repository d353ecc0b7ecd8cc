// plain_conv.cc: convolution over plain tensors, row by row.
//
// Dimensions:
//
//     src (N, C, H, W)            N samples, C channels
//     weight (O, I, KH, KW)       I = C/groups
//     dst (N, O, OH, OW)          O channels
#include <algorithm>

#include "plain.h"
#include "plain_types.h"

namespace hetero {

namespace {

constexpr int64_t kTile = 256; // number of pixels of a row that are summed on the stack

struct Geometry {
  int64_t n, c, h, w, o, oh, ow, i, kh, kw, groups;
  int64_t stride[2], padding[2], dilation[2];

  Geometry(const ht_conv2d_params &p, const ht_spec &src, const ht_spec &weight, const ht_spec &dst)
      : n(src.dims[0]), c(src.dims[1]), h(src.dims[2]), w(src.dims[3]), o(dst.dims[1]), oh(dst.dims[2]),
        ow(dst.dims[3]), i(weight.dims[1]), kh(weight.dims[2]), kw(weight.dims[3]),
        groups(p.groups), stride{p.stride[0], p.stride[1]}, padding{p.padding[0], p.padding[1]}, dilation{
                                                                                                     p.dilation[0],
                                                                                                     p.dilation[1]} {}

  // Returns the row (d = 0) or column (d = 1) of src that output position y reads through tap k.
  int64_t source(int d, int64_t y, int64_t k) const { return y * stride[d] - padding[d] + k * dilation[d]; }
  // Sets [*begin, *end) to the output columns in [from, to) whose source through tap k is inside src.
  void valid(int64_t k, int64_t from, int64_t to, int64_t *begin, int64_t *end) const {
    int64_t first = padding[1] - k * dilation[1]; // source >= 0 if and only if y*stride >= first
    int64_t last = w - 1 + first;                 // source <= w-1 if and only if y*stride <= last
    *begin = std::max(from, first <= 0 ? 0 : (first + stride[1] - 1) / stride[1]);
    *end = last < 0 ? from : std::min(to, last / stride[1] + 1);
  }
};

template <class T> struct Forward : Kernel {
  Geometry g;
  bool bias;
  Forward(const Geometry &geometry, bool with_bias) : g(geometry), bias(with_bias) {}

  void run(const Args &args) override {
    auto *src = static_cast<const T *>(args.in[0]), *weight = static_cast<const T *>(args.in[1]);
    auto *b = bias ? static_cast<const float *>(args.in[2]) : nullptr;
    auto *dst = static_cast<T *>(args.out[0]);
    int64_t per_group = g.o / g.groups;
#pragma omp parallel for collapse(3) schedule(static)
    for (int64_t n = 0; n < g.n; n++)
      for (int64_t o = 0; o < g.o; o++)
        for (int64_t y = 0; y < g.oh; y++)
          for (int64_t from = 0; from < g.ow; from += kTile) {
            const T *image = src + (n * g.c + o / per_group * g.i) * g.h * g.w; // first channel of the group
            row(image, weight + o * g.i * g.kh * g.kw, b ? b[o] : 0, dst + ((n * g.o + o) * g.oh + y) * g.ow, y, from,
                std::min(g.ow, from + kTile));
          }
  }

  void row(const T *image, const T *weight, float start, T *dst, int64_t y, int64_t from, int64_t to) const {
    float sum[kTile];
    std::fill_n(sum, to - from, start);
    for (int64_t i = 0; i < g.i; i++)
      for (int64_t kh = 0; kh < g.kh; kh++) {
        int64_t sy = g.source(0, y, kh);
        if (sy < 0 || sy >= g.h) continue;
        for (int64_t kw = 0; kw < g.kw; kw++) {
          float f = load(weight + (i * g.kh + kh) * g.kw + kw);
          const T *s = image + (i * g.h + sy) * g.w;
          int64_t begin, end;
          g.valid(kw, from, to, &begin, &end);
          for (int64_t x = begin; x < end; x++) sum[x - from] += f * load(s + g.source(1, x, kw));
        }
      }
    for (int64_t x = from; x < to; x++) store(dst + x, sum[x - from]);
  }
};

template <class T> struct DiffSrc : Kernel {
  Geometry g;
  explicit DiffSrc(const Geometry &geometry) : g(geometry) {}

  void run(const Args &args) override {
    auto *diff_dst = static_cast<const T *>(args.in[0]), *weight = static_cast<const T *>(args.in[1]);
    auto *diff_src = static_cast<T *>(args.out[0]);
    int64_t per_group = g.o / g.groups;
#pragma omp parallel for collapse(3) schedule(static)
    for (int64_t n = 0; n < g.n; n++)
      for (int64_t c = 0; c < g.c; c++)
        for (int64_t y = 0; y < g.h; y++)
          for (int64_t from = 0; from < g.w; from += kTile) {
            int64_t o = c / g.i * per_group; // first output channel of the group
            row(diff_dst + (n * g.o + o) * g.oh * g.ow, weight + (o * g.i + c % g.i) * g.kh * g.kw,
                diff_src + ((n * g.c + c) * g.h + y) * g.w, y, from, std::min(g.w, from + kTile));
          }
  }

  void row(const T *image, const T *weight, T *dst, int64_t y, int64_t from, int64_t to) const {
    float sum[kTile] = {};
    for (int64_t o = 0; o < g.o / g.groups; o++)
      for (int64_t kh = 0; kh < g.kh; kh++) {
        int64_t position = y + g.padding[0] - kh * g.dilation[0]; // stride * output row
        if (position < 0 || position % g.stride[0] || position / g.stride[0] >= g.oh) continue;
        const T *d = image + (o * g.oh + position / g.stride[0]) * g.ow;
        for (int64_t kw = 0; kw < g.kw; kw++) {
          float f = load(weight + (o * g.i * g.kh + kh) * g.kw + kw);
          int64_t begin, end;
          g.valid(kw, 0, g.ow, &begin, &end);
          for (int64_t x = begin; x < end; x++) {
            int64_t sx = g.source(1, x, kw);
            if (sx >= from && sx < to) sum[sx - from] += f * load(d + x);
          }
        }
      }
    for (int64_t x = from; x < to; x++) store(dst + x, sum[x - from]);
  }
};

template <class T> struct DiffWeights : Kernel {
  Geometry g;
  bool bias;
  DiffWeights(const Geometry &geometry, bool with_bias) : g(geometry), bias(with_bias) {}

  void run(const Args &args) override {
    auto *src = static_cast<const T *>(args.in[0]), *diff_dst = static_cast<const T *>(args.in[1]);
    auto *diff_weight = static_cast<float *>(args.out[0]);
    auto *diff_bias = bias ? static_cast<float *>(args.out[1]) : nullptr;
    int64_t per_group = g.o / g.groups;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t o = 0; o < g.o; o++)
      for (int64_t i = 0; i < g.i; i++) {
        int64_t c = o / per_group * g.i + i;
        for (int64_t kh = 0; kh < g.kh; kh++)
          for (int64_t kw = 0; kw < g.kw; kw++)
            diff_weight[((o * g.i + i) * g.kh + kh) * g.kw + kw] = tap(src, diff_dst, o, c, kh, kw);
        if (diff_bias && i == 0) diff_bias[o] = bias_of(diff_dst, o);
      }
  }

  float tap(const T *src, const T *diff_dst, int64_t o, int64_t c, int64_t kh, int64_t kw) const {
    double sum = 0; // sum over rows in f64: an f32 sum of this many terms would lose accuracy
    int64_t begin, end;
    g.valid(kw, 0, g.ow, &begin, &end);
    for (int64_t n = 0; n < g.n; n++)
      for (int64_t y = 0; y < g.oh; y++) {
        int64_t sy = g.source(0, y, kh);
        if (sy < 0 || sy >= g.h) continue;
        const T *s = src + ((n * g.c + c) * g.h + sy) * g.w, *d = diff_dst + ((n * g.o + o) * g.oh + y) * g.ow;
        float row = 0;
        for (int64_t x = begin; x < end; x++) row += load(s + g.source(1, x, kw)) * load(d + x);
        sum += row;
      }
    return static_cast<float>(sum);
  }

  float bias_of(const T *diff_dst, int64_t o) const {
    double sum = 0;
    for (int64_t n = 0; n < g.n; n++)
      for (int64_t p = 0; p < g.oh * g.ow; p++) sum += load(diff_dst + (n * g.o + o) * g.oh * g.ow + p);
    return static_cast<float>(sum);
  }
};

} // namespace

std::unique_ptr<Kernel> make_plain_conv2d(const Request &r) {
  std::unique_ptr<Kernel> k;
  Geometry g(*static_cast<const ht_conv2d_params *>(r.params), r.in[0], r.in[1], r.out[0]);
  with_type(r.in[0],
            [&](auto *t) { k = std::make_unique<Forward<std::remove_pointer_t<decltype(t)>>>(g, r.in.size() == 3); });
  take_plain_operands(*k, r);
  return k;
}

std::unique_ptr<Kernel> make_plain_conv2d_diff_src(const Request &r) {
  std::unique_ptr<Kernel> k;
  Geometry g(*static_cast<const ht_conv2d_params *>(r.params), r.out[0], r.in[1], r.in[0]);
  with_type(r.in[0], [&](auto *t) { k = std::make_unique<DiffSrc<std::remove_pointer_t<decltype(t)>>>(g); });
  take_plain_operands(*k, r);
  return k;
}

std::unique_ptr<Kernel> make_plain_conv2d_diff_weights(const Request &r) {
  std::unique_ptr<Kernel> k;
  Geometry g(*static_cast<const ht_conv2d_params *>(r.params), r.in[0], r.out[0], r.in[1]);
  with_type(r.in[0], [&](auto *t) {
    k = std::make_unique<DiffWeights<std::remove_pointer_t<decltype(t)>>>(g, r.out.size() == 2);
  });
  take_plain_operands(*k, r);
  return k;
}

} // namespace hetero
