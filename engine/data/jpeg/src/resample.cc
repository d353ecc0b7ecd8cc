#include "resample.h"

#include <algorithm>

namespace hetero {
namespace {

uint8_t to_byte(int32_t sum) { return uint8_t(std::min(sum >> kWeightBits, 255)); }

void horizontal(uint8_t *dst, const uint8_t *src, size_t row_bytes, int32_t num_rows, const uint8_t *,
                const hetero_taps &x) {
  for (int32_t row = 0; row < num_rows; row++, src += row_bytes) {
    for (int32_t k = 0; k < x.count; k++, dst += 3) {
      const uint8_t *p = src + 3 * int64_t(x.start[k]);
      const int32_t *w = x.weight + int64_t(k) * x.width;
      int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (int32_t i = 0; i < x.num[k]; i++, p += 3) {
        red += w[i] * p[0];
        green += w[i] * p[1];
        blue += w[i] * p[2];
      }
      dst[0] = to_byte(red);
      dst[1] = to_byte(green);
      dst[2] = to_byte(blue);
    }
  }
}

void vertical(uint8_t *dst, const uint8_t *rows, int32_t bytes, int32_t num, const int32_t *weight) {
  for (int32_t c = 0; c < bytes; c++) {
    int32_t sum = kHalf;
    for (int32_t i = 0; i < num; i++) sum += weight[i] * rows[int64_t(i) * bytes + c];
    dst[c] = to_byte(sum);
  }
}

const ResampleLoops &loops() {
#if defined(__x86_64__)
  static const ResampleLoops &best = __builtin_cpu_supports("avx2") ? resample_avx2 : resample_generic;
  return best;
#else
  return resample_generic;
#endif
}

} // namespace

const ResampleLoops resample_generic = {horizontal, vertical};

void resample(uint8_t *dst, const uint8_t *src, size_t src_bytes, int32_t src_width, const hetero_taps *x,
              const hetero_taps *y, uint8_t *rows) {
  const int32_t last = y->count - 1, top = y->start[0], bottom = y->start[last] + y->num[last];
  const size_t row_bytes = 3 * size_t(src_width);
  const int32_t out_bytes = 3 * x->count;
  const ResampleLoops &l = loops();
  l.horizontal(rows, src + size_t(top) * row_bytes, row_bytes, bottom - top, src + src_bytes, *x);
  for (int32_t k = 0; k < y->count; k++)
    l.vertical(dst + int64_t(k) * out_bytes, rows + int64_t(y->start[k] - top) * out_bytes, out_bytes, y->num[k],
               y->weight + int64_t(k) * y->width);
}

} // namespace hetero
