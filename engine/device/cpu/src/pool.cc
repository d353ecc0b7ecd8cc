// pool.cc: pooling of images, and all gradients. The loops are in pool_simd.h.
//
//   - max and average pooling: (N, C, H, W) to (N, C, OH, OW)
//   - global average pooling: (N, C, H, W) to (N, C)
//
// Each thread processes whole planes. A plane consists of up to 16 channels of one image.
#include <algorithm>

#include "bf16.h"
#include "images.h"
#include "layout.h"
#include "ops.h"
#include "rows.h"
#include "simd_table.h"

namespace hetero {
namespace {

// The tables of one dimension, y or x (PoolAxis in simd_table.h).
struct Axis {
  int32_t in, out, kernel, stride, padding, dilation;
  std::vector<int32_t> first, last, begin, window, tap;
  bool empty_window = false; // whether some window contains only padding

  Axis(const ht_pool2d_params &p, int d, int64_t in_, int64_t out_)
      : in(int32_t(in_)), out(int32_t(out_)), kernel(p.kernel[d]), stride(p.stride[d]), padding(p.padding[d]),
        dilation(p.dilation[d]) {
    if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 ||
        out_ != (in_ + 2 * padding - int64_t(dilation) * (kernel - 1) - 1) / stride + 1)
      throw Invalid("pooling: the sizes of input (" + std::to_string(in_) + ") and output (" + std::to_string(out_) +
                    ") do not match kernel " + std::to_string(kernel) + ", stride " + std::to_string(stride) +
                    ", padding " + std::to_string(padding) + " and dilation " + std::to_string(dilation));
    for (int32_t o = 0; o < out; o++) {
      int32_t k = 0;
      while (k < kernel && at(o, k) < 0) k++;
      first.push_back(k);
      while (k < kernel && at(o, k) < in) k++;
      last.push_back(k);
      empty_window |= first.back() == last.back();
    }
    for (int32_t i = 0; i < in; i++) {
      begin.push_back(int32_t(window.size()));
      for (int32_t o = std::max(0, (i + padding - dilation * (kernel - 1)) / stride); o < out && at(o, 0) <= i; o++) {
        const int32_t k = (i - at(o, 0)) / dilation;
        if (k >= kernel || at(o, k) != i) continue;
        window.push_back(o);
        tap.push_back(k);
      }
    }
    begin.push_back(int32_t(window.size()));
  }

  int32_t at(int32_t o, int32_t k) const { return o * stride - padding + k * dilation; }

  PoolAxis view() const {
    return {in,           out,         kernel,       stride,        padding,   dilation,
            first.data(), last.data(), begin.data(), window.data(), tap.data()};
  }
};

// The common state of max and average pooling and of their gradients. `large` is the image that the windows read.
// `small` has one pixel per window.
struct Pool : Kernel {
  ht_pool2d_params p;
  bool bf16;
  uint32_t layout;
  ImageLayout large{}, small{};
  std::vector<Axis> axes; // tables of y, then of x
  int64_t groups;         // number of groups of up to 16 channels
  int64_t size;

  Pool(const Request &request, bool backward, int made_for = -1)
      : p(*static_cast<const ht_pool2d_params *>(request.params)), bf16(is_bf16(request.in[0])) {
    Request plain = request;
    plain.out[0].layout = HT_LAYOUT_PLAIN;
    take_plain(*this, plain);
    layout = choose_image_layout(*this, request, {0}, {0}, made_for);
    image_layout(backward ? out[0] : in[0], &large);
    image_layout(backward ? in[0] : out[0], &small);
    axes.emplace_back(p, 0, large.h, small.h);
    axes.emplace_back(p, 1, large.w, small.w);
    groups = large.nhwc ? (large.c + 15) / 16 : large.cblocks;
    size = bf16 ? 2 : 4;
  }

  bool four_bytes() const { return int64_t(p.kernel[0]) * p.kernel[1] > 255; }
  int64_t argmax_bytes() const { return small.elements() * (four_bytes() ? 4 : 1); }

  // Calls f(plane, first element of large, first element of small) for all planes, in parallel.
  template <class F> void each_plane(F f) const {
#pragma omp parallel for schedule(static) if (worth_threads(large.elements() * size))
    for (int64_t i = 0; i < large.n * groups; i++) {
      const int64_t n = i / groups, c = i % groups * (large.nhwc ? 16 : large.blk);
      const int lanes = int(large.nhwc ? std::min<int64_t>(16, large.c - c) : large.blk);
      f(PoolPlane{axes[0].view(), axes[1].view(), large.blk, lanes}, large.index(n, c, 0), small.index(n, c, 0));
    }
  }
};

void *at(void *a, int64_t byte) { return static_cast<char *>(a) + byte; }

struct MaxPool final : Pool {
  explicit MaxPool(const Request &request) : Pool(request, false) {
    if (out.size() < 2) return;
    out[1] = opaque_spec(argmax_bytes());
    out[1].layout = layout;
  }

  void run(const Args &a) override {
    const auto pool = simd().pool.max[bf16][four_bytes()];
    const int64_t entry = four_bytes() ? 4 : 1;
    each_plane([&](const PoolPlane &plane, int64_t from, int64_t to) {
      pool(plane, at(a.in[0], from * size), at(a.out[0], to * size),
           out.size() > 1 ? at(a.out[1], to * entry) : nullptr);
    });
    // Clear the padding, which would otherwise contain -infinity.
    if (axes[0].empty_window || axes[1].empty_window) clear_padding(out[0], a.out[0]);
  }
};

struct MaxPoolDiff final : Pool {
  explicit MaxPoolDiff(const Request &request) : Pool(request, true, 1) {
    if (in[1].bytes && in[1].bytes != argmax_bytes())
      throw Invalid("argmax: got " + std::to_string(in[1].bytes) + " bytes, want " + std::to_string(argmax_bytes()));
    in[1].bytes = argmax_bytes();
  }

  void run(const Args &a) override {
    const auto pool = simd().pool.max_diff[bf16][four_bytes()];
    const int64_t entry = four_bytes() ? 4 : 1;
    each_plane([&](const PoolPlane &plane, int64_t to, int64_t from) {
      pool(plane, at(a.in[0], from * size), at(a.in[1], from * entry), at(a.out[0], to * size));
    });
  }
};

struct AvgPool final : Pool {
  explicit AvgPool(const Request &request) : Pool(request, false) {}

  void run(const Args &a) override {
    each_plane([&](const PoolPlane &plane, int64_t from, int64_t to) {
      simd().pool.avg[bf16](plane, p.count_padding != 0, at(a.in[0], from * size), at(a.out[0], to * size));
    });
  }
};

struct AvgPoolDiff final : Pool {
  explicit AvgPoolDiff(const Request &request) : Pool(request, true) {}

  void run(const Args &a) override {
    each_plane([&](const PoolPlane &plane, int64_t to, int64_t from) {
      simd().pool.avg_diff[bf16](plane, p.count_padding != 0, at(a.in[0], from * size), at(a.out[0], to * size));
    });
  }
};

// --- global --------------------------------------------------------------------------------------

// Global average pooling of an image (N, C, H, W) to its means (N, C), and its gradient. The means are plain.
struct Global : Kernel {
  bool bf16;
  Rows rows;
  int64_t samples, channels;
  double pixels;

  Global(const Request &request, bool backward) : bf16(is_bf16(request.in[0])) {
    want_operands(request, 1, 1);
    Request plain = request;
    if (backward) plain.out[0].layout = HT_LAYOUT_PLAIN;
    take_plain(*this, plain);
    choose_image_layout(*this, request, backward ? Positions{} : Positions{0}, backward ? Positions{0} : Positions{});
    ImageLayout image;
    image_layout(backward ? out[0] : in[0], &image);
    rows = rows_of(image);
    samples = image.n;
    channels = image.c;
    pixels = double(image.pixels());
  }

  // Calls f(n, unit, first channel, channels) for the units of all samples, in parallel.
  template <class F> void each_unit(int64_t bytes, F f) const {
#pragma omp parallel for schedule(static) if (worth_threads(bytes))
    for (int64_t i = 0; i < samples * rows.units; i++) {
      const int64_t unit = i % rows.units, c = unit * rows.unit_channels;
      f(i / rows.units, unit, c, std::min(rows.unit_channels, channels - c));
    }
  }
};

struct GlobalAvgPool final : Global {
  explicit GlobalAvgPool(const Request &request) : Global(request, false) {}

  void run(const Args &a) override {
    each_unit(in[0].bytes, [&](int64_t n, int64_t unit, int64_t c, int64_t count) {
      double sums[16];
      simd().pool.sum[bf16](rows, unit, n * rows.rows_per_sample, (n + 1) * rows.rows_per_sample, a.in[0], sums);
      for (int64_t l = 0; l < count; l++) {
        const int64_t to = n * channels + c + l;
        if (bf16)
          put(static_cast<Bf16 *>(a.out[0]) + to, float(sums[l] / pixels));
        else
          put(static_cast<float *>(a.out[0]) + to, float(sums[l] / pixels));
      }
    });
  }
};

struct GlobalAvgPoolDiff final : Global {
  explicit GlobalAvgPoolDiff(const Request &request) : Global(request, true) {}

  void run(const Args &a) override {
    each_unit(out[0].bytes, [&](int64_t n, int64_t unit, int64_t c, int64_t count) {
      float values[16] = {}; // the values of padding stay zero
      for (int64_t l = 0; l < 16; l++) {
        if (l % rows.unit_channels >= count) continue;
        const int64_t from = n * channels + c + l % rows.unit_channels;
        values[l] =
            (bf16 ? to_f32(static_cast<const Bf16 *>(a.in[0])[from]) : static_cast<const float *>(a.in[0])[from]) /
            float(pixels);
      }
      simd().pool.spread[bf16](rows, unit, n * rows.rows_per_sample, (n + 1) * rows.rows_per_sample, values, a.out[0]);
    });
  }
};

} // namespace

std::unique_ptr<Kernel> make_max_pool2d(const Request &request) {
  const bool train = static_cast<const ht_pool2d_params *>(request.params)->train;
  want_operands(request, 1, train ? 2 : 1);
  return std::make_unique<MaxPool>(request);
}

std::unique_ptr<Kernel> make_max_pool2d_diff(const Request &request) {
  want_operands(request, 2, 1);
  return std::make_unique<MaxPoolDiff>(request);
}

std::unique_ptr<Kernel> make_avg_pool2d(const Request &request) {
  want_operands(request, 1, 1);
  return std::make_unique<AvgPool>(request);
}

std::unique_ptr<Kernel> make_avg_pool2d_diff(const Request &request) {
  want_operands(request, 1, 1);
  return std::make_unique<AvgPoolDiff>(request);
}

std::unique_ptr<Kernel> make_global_avg_pool(const Request &request) {
  return std::make_unique<GlobalAvgPool>(request);
}

std::unique_ptr<Kernel> make_global_avg_pool_diff(const Request &request) {
  return std::make_unique<GlobalAvgPoolDiff>(request);
}

} // namespace hetero
