// pair_product_avx512bf16.cc: the loops of pair_product.h.
#include "pair_product.h"

#include "elementwise_simd.h"
#include "vmath.h"

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
    for (int j = 0; j < 2; j++) { // b[i + c] holds lane c of rows i … i+3 in each quarter
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

// --- classifier ----------------------------------------------------------------------------------

void logit_stats(const LogitTile &t, const float *own, LogitPanel *s) {
  for (int64_t r = 0; r < t.rows; r += kLanes) {
    const F32 mine = load(own + r), before = load(s->largest + r);
    const __m512i label = _mm512_loadu_si512(t.labels + r);
    __m512i higher = _mm512_loadu_si512(s->higher + r);
    F32 x[kTileRows], most = before;
    for (int64_t c = 0; c < t.classes; c++) {
      x[c] = load(t.sums + c * kPanel + r);
      if (t.bias) x[c] = x[c] + all(t.bias[c]);
      most = max(x[c], most);
      const __m512i id = _mm512_set1_epi32(t.first + (int32_t)c);
      const __mmask16 equal = bits(x[c] >= mine) & _mm512_cmplt_epi32_mask(id, label);
      const __mmask16 greater = bits(x[c] > mine) & _mm512_cmpgt_epi32_mask(id, label);
      higher = _mm512_mask_add_epi32(higher, equal | greater, higher, _mm512_set1_epi32(1));
    }
    _mm512_storeu_si512(s->higher + r, higher);
    store(s->largest + r, most);
    F32 sum = zero();
    for (int64_t c = 0; c < t.classes; c++) sum = sum + exp(x[c] - most);
    const F32 shrink = exp(before - most);
    for (int half = 0; half < 2; half++) {
      double *to = s->sum + r + 8 * half;
      const __m256 added =
          half ? _mm512_extractf32x8_ps((__m512)sum.p[0], 1) : _mm512_castps512_ps256((__m512)sum.p[0]);
      const __m256 factor =
          half ? _mm512_extractf32x8_ps((__m512)shrink.p[0], 1) : _mm512_castps512_ps256((__m512)shrink.p[0]);
      _mm512_storeu_pd(
          to, _mm512_add_pd(_mm512_mul_pd(_mm512_loadu_pd(to), _mm512_cvtps_pd(factor)), _mm512_cvtps_pd(added)));
    }
  }
}

void logit_diff(const LogitTile &t, const float *lse, float scale, uint16_t *dst, int64_t dst_row, uint32_t *pairs) {
  const F32 factor = all(scale), one = all(1.0f);
  for (int64_t r = 0; r < t.rows; r += kLanes) {
    const __mmask16 valid = lanes_of(t.rows - r);
    const F32 l = load(lse + r);
    const __m512i label = _mm512_loadu_si512(t.labels + r);
    __m512i low = _mm512_setzero_si512();
    for (int64_t c = 0; c < kTileRows; c++) {
      __m512i wide = _mm512_setzero_si512();
      if (c < t.classes) {
        F32 x = load(t.sums + c * kPanel + r);
        if (t.bias) x = x + all(t.bias[c]);
        F32 g = exp(x - l);
        const __mmask16 own = _mm512_cmpeq_epi32_mask(label, _mm512_set1_epi32(t.first + (int32_t)c));
        g = select(mask_of(own), g - one, g) * factor;
        const __m256i rounded = _mm256_maskz_mov_epi16(valid, bf16_of(g));
        _mm256_storeu_si256((__m256i *)(dst + c * dst_row + r), rounded);
        wide = _mm512_cvtepu16_epi32(rounded);
      }
      if (c % 2 == 0)
        low = wide;
      else
        _mm512_storeu_si512(pairs + c / 2 * kPanel + r, _mm512_or_si512(low, _mm512_slli_epi32(wide, 16)));
    }
  }
}

float sum(int64_t n, const uint16_t *src) {
  F32 s = zero();
  each_vector(n, [&](int64_t i, auto full, int lanes) { s = s + load_row<full.value>((const Bf16 *)src + i, lanes); });
  return sum_of(s);
}

#define ROW(r)                                                                                                         \
  { tile<r, 1>, tile<r, 2>, tile<r, 3> }

} // namespace

extern const PairTable pair_table_avx512bf16;
const PairTable pair_table_avx512bf16 = {{ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8)},
                                         interleave,
                                         transpose,
                                         {finish<float>, finish<Bf16>},
                                         logit_stats,
                                         logit_diff,
                                         sum};

} // namespace hetero
