// pair_product_avx512bf16.cc: the loops of pair_product.h.
#include "pair_product.h"

#include "simd.h"

namespace hetero {
namespace {

// --- products ------------------------------------------------------------------------------------

template <int rows, int vectors> void tile(const PairTile &t) {
  __m512 sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; v++)
      sum[r][v] = t.add ? _mm512_loadu_ps(t.out + r * t.out_row + v * kLanes) : _mm512_setzero_ps();
  const uint32_t *a = (const uint32_t *)t.a, *panel = (const uint32_t *)t.panel;
  for (int64_t k = 0; k < t.pairs; k++, a += t.a_step, panel += kPanel) {
    __m512bh b[vectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; v++) b[v] = (__m512bh)_mm512_loadu_si512(panel + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
      const __m512bh f = (__m512bh)_mm512_set1_epi32((int)a[r * t.a_row]);
#pragma GCC unroll 3
      for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], f, b[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; v++) _mm512_storeu_ps(t.out + r * t.out_row + v * kLanes, sum[r][v]);
}

// --- panels --------------------------------------------------------------------------------------

SIMD_INLINE __mmask16 lanes_of(int64_t n) { return n >= kLanes ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }

void interleave(const void *src_, int64_t src_row, int64_t rows, int64_t columns, int64_t group, int64_t group_stride,
                uint32_t *dst, float *sums) {
  const uint16_t *src = (const uint16_t *)src_;
  const __mmask16 masks[3] = {lanes_of(columns), lanes_of(columns - kLanes), lanes_of(columns - 2 * kLanes)};
  __m512 sum[3] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t k = 0; 2 * k < rows; k++, src += 2 * src_row)
    for (int v = 0; v < 3; v++) {
      const __mmask16 second = 2 * k + 1 < rows ? masks[v] : 0;
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(masks[v], src + v * kLanes));
      const __m512i high =
          _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, src + src_row + v * kLanes)), 16);
      if (sums)
        sum[v] = _mm512_add_ps(_mm512_add_ps(sum[v], _mm512_castsi512_ps(_mm512_slli_epi32(low, 16))),
                               _mm512_castsi512_ps(high));
      const __m512i pairs = _mm512_or_si512(low, high);
      if (group == kPanel) {
        _mm512_storeu_si512(dst + k * kPanel + v * kLanes, pairs);
      } else {
        _mm256_storeu_si256((__m256i *)(dst + 2 * v * group_stride + k * kTileRows), _mm512_castsi512_si256(pairs));
        _mm256_storeu_si256((__m256i *)(dst + (2 * v + 1) * group_stride + k * kTileRows),
                            _mm512_extracti64x4_epi64(pairs, 1));
      }
    }
  for (int v = 0; sums && v < 3; v++) {
    float *s = sums + v * kLanes;
    _mm512_mask_storeu_ps(s, masks[v], _mm512_add_ps(_mm512_maskz_loadu_ps(masks[v], s), sum[v]));
  }
}

// Transposes 16 vectors of 16 lanes of 32 bits.
SIMD_INLINE void transpose_16x16(__m512i v[16]) {
  __m512i a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) { // b[i + c]: lane c of rows i … i+3 in each quarter
      b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    const __m512i low = _mm512_shuffle_i32x4(b[c], b[c + 4], 0x88), high = _mm512_shuffle_i32x4(b[c], b[c + 4], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0x88),
                  high2 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0xdd);
    v[c] = _mm512_shuffle_i32x4(low, low2, 0x88);
    v[c + 8] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    v[c + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
    v[c + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
}

void transpose(const void *src_, int64_t src_row, int64_t rows, int64_t columns, uint32_t *dst) {
  const uint16_t *src = (const uint16_t *)src_;
  for (int64_t from = 0; from < kPanel; from += kLanes)
    for (int64_t c = 0; c < columns; c += 2 * kLanes) {
      const int64_t pairs = (columns - c) / 2;
      const __mmask16 mask = lanes_of(pairs);
      __m512i v[16];
      for (int64_t r = 0; r < kLanes; r++)
        v[r] =
            from + r < rows ? _mm512_maskz_loadu_epi32(mask, src + (from + r) * src_row + c) : _mm512_setzero_si512();
      transpose_16x16(v);
      for (int64_t k = 0; k < kLanes && k < pairs; k++) _mm512_storeu_si512(dst + (c / 2 + k) * kPanel + from, v[k]);
    }
}

template <class T>
void finish(int64_t rows, int64_t columns, const float *src, const float *bias, void *dst_, int64_t dst_row) {
  T *dst = (T *)dst_;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += kLanes) {
      const int lanes = columns - c < kLanes ? int(columns - c) : kLanes;
      F32 v = load(src + r * kPanel + c);
      if (bias) v = v + load_first(bias + c, lanes);
      store_first(dst + r * dst_row + c, v, lanes);
    }
}

#define ROW(r)                                                                                                         \
  { tile<r, 1>, tile<r, 2>, tile<r, 3> }

} // namespace

extern const PairTable pair_table_avx512bf16;
const PairTable pair_table_avx512bf16 = {{ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8)},
                                         interleave,
                                         transpose,
                                         {finish<float>, finish<Bf16>}};

} // namespace hetero
