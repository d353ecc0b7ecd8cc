// float_product_avx512.cc: the loops of panel_product.h for f32.
#include "panel_simd.h"

namespace hetero {
namespace {

struct Float {
  using Vector = __m512;

  static SIMD_INLINE Vector load(const uint32_t *p) { return _mm512_loadu_ps(p); }
  static SIMD_INLINE Vector spread(uint32_t unit) { return _mm512_castsi512_ps(_mm512_set1_epi32((int)unit)); }
  static SIMD_INLINE __m512 add_product(__m512 sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
};

void interleave(const void *src_, int64_t src_row, int64_t rows, int64_t columns, int64_t group, int64_t group_stride,
                uint32_t *dst_, float *sums) {
  const float *src = (const float *)src_;
  float *dst = (float *)dst_;
  const __mmask16 masks[3] = {lanes_of(columns), lanes_of(columns - kLanes), lanes_of(columns - 2 * kLanes)};
  __m512 sum[3] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t k = 0; k < rows; k++, src += src_row)
    for (int v = 0; v < 3; v++) {
      const __m512 x = _mm512_maskz_loadu_ps(masks[v], src + v * kLanes);
      if (sums) sum[v] = _mm512_add_ps(sum[v], x);
      if (group == kPanel) {
        _mm512_storeu_ps(dst + k * kPanel + v * kLanes, x);
      } else {
        _mm256_storeu_ps(dst + 2 * v * group_stride + k * kTileRows, _mm512_castps512_ps256(x));
        _mm256_storeu_ps(dst + (2 * v + 1) * group_stride + k * kTileRows, _mm512_extractf32x8_ps(x, 1));
      }
    }
  for (int v = 0; sums && v < 3; v++) {
    float *s = sums + v * kLanes;
    _mm512_mask_storeu_ps(s, masks[v], _mm512_add_ps(_mm512_maskz_loadu_ps(masks[v], s), sum[v]));
  }
}

} // namespace

extern const PanelTable float_panels_avx512;
const PanelTable float_panels_avx512 = panels_of<Float>(1, interleave);

} // namespace hetero
