// dropout.cc: dst = src·factor if an element of src (N, …) is kept, else 0.
//
// Whether an element is kept depends only on (key, stream, sample id, row-major position in the sample). The gradient
// is therefore the same op, and no mask is stored. In image layouts, the positions of a channel are processed in order,
// at their addresses in the layout. The generator is in dropout_simd.h.
#include <algorithm>
#include <cmath>

#include "bf16.h"
#include "images.h"
#include "layout.h"
#include "ops.h"
#include "simd_table.h"

namespace hetero {
namespace {

constexpr int64_t kChunk = 8192; // positions of a chunk, which one thread processes: a multiple of 64

struct Dropout final : Kernel {
  bool bf16;
  uint32_t stream;
  uint64_t threshold;
  float factor;
  int64_t samples, positions; // positions per sample
  bool plain = true;
  ImageLayout image{};

  explicit Dropout(const Request &request) : bf16(is_bf16(request.in[0])) {
    const auto &p = *static_cast<const ht_dropout_params *>(request.params);
    want_operands(request, 3, 1);
    if (request.in[1].dtype != HT_I64) throw Invalid("ids: got " + describe(request.in[1]) + ", want i64");
    if (request.in[2].dtype != HT_U32) throw Invalid("key: got " + describe(request.in[2]) + ", want u32");
    Request as_plain = request;
    as_plain.out[0].layout = HT_LAYOUT_PLAIN;
    take_plain(*this, request.in[0].ndim == 4 ? as_plain : request);
    if (in[0].ndim == 4) plain = choose_image_layout(*this, request, {0}, {0}) == HT_LAYOUT_PLAIN;
    if (!plain) image_layout(in[0], &image);
    inplace = {{0, 0}};
    stream = p.stream;
    threshold = uint64_t(std::round(p.p * 4294967296.0));
    factor = float(1 / (1 - p.p));
    samples = in[0].dims[0];
    positions = elements(in[0]) / samples;
    if (positions > int64_t(1) << 32)
      throw Unsupported("elements of a sample: got " + std::to_string(positions) + ", want at most 4294967296");
  }

  DropoutSample sample(const Args &a, int64_t n) const {
    const auto *key = static_cast<const uint32_t *>(a.in[2]);
    return {uint64_t(static_cast<const int64_t *>(a.in[1])[n]), {key[0], key[1]}, stream, threshold, factor};
  }

  void run(const Args &a) override {
    if (!plain && bf16) return run_image(a, static_cast<const Bf16 *>(a.in[0]), static_cast<Bf16 *>(a.out[0]));
    if (!plain) return run_image(a, static_cast<const float *>(a.in[0]), static_cast<float *>(a.out[0]));
    const auto apply = simd().dropout.apply[bf16];
    const int64_t chunks = (positions + kChunk - 1) / kChunk, size = bf16 ? 2 : 4;
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t i = 0; i < samples * chunks; i++) {
      const int64_t n = i / chunks, from = i % chunks * kChunk, at = (n * positions + from) * size;
      apply(sample(a, n), from, std::min(kChunk, positions - from), static_cast<const char *>(a.in[0]) + at,
            static_cast<char *>(a.out[0]) + at);
    }
  }

  template <class T> void run_image(const Args &a, const T *src, T *dst) const {
    const auto keep_bytes = simd().dropout.keep;
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t i = 0; i < samples * image.c; i++) {
      const int64_t n = i / image.c, c = i % image.c, first = c * image.pixels(), end = first + image.pixels();
      const DropoutSample s = sample(a, n);
      uint8_t keep[kChunk];
      for (int64_t from = first / 64 * 64; from < end; from += kChunk) {
        keep_bytes(s, from, std::min(kChunk, end - from), keep);
        for (int64_t p = std::max(from, first); p < std::min(from + kChunk, end); p++) {
          const int64_t at = image.index(n, c, p - first);
          put(dst + at, keep[p - from] ? to_f32(src[at]) * factor : 0.0f);
        }
      }
    }
    clear_padding(out[0], dst);
  }
};

} // namespace

std::unique_ptr<Kernel> make_dropout(const Request &request) { return std::make_unique<Dropout>(request); }

} // namespace hetero
