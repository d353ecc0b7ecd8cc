// image_normalize.cc: converts bytes of images, src (N, H, W, C), to the input of a network, dst (N, C, H, W). For each
// channel:
//
//     dst = src·a + b,  a = 1/(255·std),  b = -mean/std
//
// a and b are f32, and the product is rounded before the sum. The kernel writes any of the four image layouts directly.
// Each channel has only 256 possible results, which are computed once.
#include <algorithm>
#include <cstring>

#include "bf16.h"
#include "images.h"
#include "layout.h"
#include "ops.h"

namespace hetero {
namespace {

constexpr int64_t kPixels = 4096; // pixels of a chunk, which one thread processes

struct ImageNormalize final : Kernel {
  bool bf16;
  int64_t pixels, channels;
  std::vector<float> table; // results (C, 256)
  std::vector<Bf16> table16;
  ImageLayout image{};

  explicit ImageNormalize(const Request &request) {
    const auto &p = *static_cast<const ht_image_normalize_params *>(request.params);
    want_operands(request, 1, 1);
    bf16 = is_bf16(request.out[0]);
    if (request.in[0].dtype != HT_U8) throw Invalid("src: got " + describe(request.in[0]) + ", want u8");
    channels = request.in[0].dims[3];
    pixels = request.in[0].dims[1] * request.in[0].dims[2];
    if (p.channels != channels)
      throw Invalid("mean: got " + std::to_string(p.channels) + " channels, want " + std::to_string(channels));
    Request plain = request;
    plain.out[0].layout = HT_LAYOUT_PLAIN;
    take_plain(*this, plain);
    // There is no input whose layout dst could follow, so dst is plain unless it is bound to another layout.
    if (request.out[0].layout != HT_LAYOUT_ANY) choose_image_layout(*this, request, {}, {0});
    image_layout(out[0], &image);
    table.resize(size_t(channels) * 256);
    table16.resize(bf16 ? table.size() : 0);
    for (int64_t c = 0; c < channels; c++) {
      const float a = 1 / (255 * p.std[c]), b = -p.mean[c] / p.std[c];
      for (int64_t i = 0; i < 256; i++) {
        const float product = float(i) * a;
        table[size_t(c * 256 + i)] = product + b;
        if (bf16) put(&table16[size_t(c * 256 + i)], product + b);
      }
    }
  }

  void run(const Args &a) override {
    const auto *src = static_cast<const uint8_t *>(a.in[0]);
    if (bf16)
      run_typed(src, table16.data(), static_cast<Bf16 *>(a.out[0]));
    else
      run_typed(src, table.data(), static_cast<float *>(a.out[0]));
  }

  template <class T> void run_typed(const uint8_t *src, const T *values, T *dst) const {
    const int64_t chunks = (pixels + kPixels - 1) / kPixels;
#pragma omp parallel for schedule(static) if (worth_threads(out[0].bytes))
    for (int64_t i = 0; i < image.n * chunks; i++) {
      const int64_t n = i / chunks, from = i % chunks * kPixels, to = std::min(pixels, from + kPixels);
      if (image.padded_c() > channels) {
        const int64_t at = image.index(n, channels / image.blk * image.blk, from);
        std::memset(static_cast<void *>(dst + at), 0, size_t((to - from) * image.blk) * sizeof(T));
      }
      for (int64_t c = 0; c < channels; c++) {
        const uint8_t *s = src + (n * pixels + from) * channels + c;
        T *d = dst + image.index(n, c, from);
        const T *of = values + c * 256;
        for (int64_t p = from; p < to; p++, s += channels, d += image.blk) *d = of[*s];
      }
    }
  }
};

} // namespace

std::unique_ptr<Kernel> make_image_normalize(const Request &request) {
  return std::make_unique<ImageNormalize>(request);
}

} // namespace hetero
