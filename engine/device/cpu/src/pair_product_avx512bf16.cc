// pair_product_avx512bf16.cc: the loops of pair_product.h.
#include "pair_product.h"

#include "elementwise_simd.h"
#include "panel_simd.h"
#include "spread_bf16.h"
#include "unroll.h"
#include "vmath.h"

namespace hetero {
namespace {

// Returns exp(x) = 2^n·exp(r), with |r| <= ln(2)/2. exp(r) is the series up to r^7/7!, with fused multiply-adds. The
// error is at most two units in the last place. Infinities and NaN give the results of <math.h>.
SIMD_INLINE F32 fast_exp(F32 x_) {
  // Both instructions return their second operand if it is NaN.
  const __m512 x = _mm512_min_ps(_mm512_set1_ps(100.0f), _mm512_max_ps(_mm512_set1_ps(-104.0f), (__m512)x_.p[0]));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  const float series[] = {1.0f, 1.0f, 1.0f / 2, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040};
  __m512 y = _mm512_set1_ps(series[7]);
  HT_UNROLL(8)
  for (int i = 6; i >= 0; i--) y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(series[i]));
  return {{(PartF)_mm512_scalef_ps(y, n)}};
}

struct Pair {
  using Vector = __m512bh;

  static SIMD_INLINE Vector load(const uint32_t *p) { return (Vector)_mm512_loadu_si512(p); }
  static SIMD_INLINE Vector spread(uint32_t unit) { return SPREAD_BF16((int)unit); }
  static SIMD_INLINE __m512 add_product(__m512 sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, a, b); }
};

// --- panels --------------------------------------------------------------------------------------

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

// --- classifier ----------------------------------------------------------------------------------

// Adds the logits of a tile to the statistics of 16 rows, from row r on. It also counts the classes that rank before
// the label. A class ranks before the label if its logit is larger than own. It also does if its logit equals own and
// its number is lower.
template <bool whole> SIMD_INLINE void stats_of(const LogitTile &t, int64_t r, const float *own, LogitPanel *s) {
  const int64_t classes = whole ? kTileRows : t.classes;
  const __m512 mine = _mm512_loadu_ps(own + r);
  const __m512i label = _mm512_loadu_si512(t.labels + r), first = _mm512_set1_epi32(t.first);
  const F32 before = load(s->largest + r);
  F32 x[kTileRows], most = before;
  HT_UNROLL(8)
  for (int64_t c = 0; c < classes; c++) {
    x[c] = load(t.sums + c * kPanel + r);
    if (t.bias) x[c] = x[c] + all(t.bias[c]);
    most = max(x[c], most);
  }
  __m512i higher = _mm512_loadu_si512(s->higher + r);
  const __m512i one = _mm512_set1_epi32(1);
  HT_UNROLL(8)
  for (int64_t c = 0; c < classes; c++) {
    const __m512i id = _mm512_add_epi32(first, _mm512_set1_epi32((int32_t)c));
    const __mmask16 equal =
        _mm512_mask_cmp_ps_mask(_mm512_cmplt_epi32_mask(id, label), (__m512)x[c].p[0], mine, _CMP_EQ_OQ);
    const __mmask16 greater =
        _mm512_cmp_ps_mask((__m512)x[c].p[0], mine, _CMP_GT_OQ) & _mm512_cmpneq_epi32_mask(id, label);
    higher = _mm512_mask_add_epi32(higher, equal | greater, higher, one);
  }
  _mm512_storeu_si512(s->higher + r, higher);
  store(s->largest + r, most);
  F32 sum[2] = {zero(), zero()};
  HT_UNROLL(8)
  for (int64_t c = 0; c < classes; c++) sum[c % 2] = sum[c % 2] + fast_exp(x[c] - most);
  const __m512 added = (__m512)(sum[0] + sum[1]).p[0], shrink = (__m512)fast_exp(before - most).p[0];
  for (int half = 0; half < 2; half++) {
    double *to = s->sum + r + 8 * half;
    const __m256 a = half ? _mm512_extractf32x8_ps(added, 1) : _mm512_castps512_ps256(added);
    const __m256 f = half ? _mm512_extractf32x8_ps(shrink, 1) : _mm512_castps512_ps256(shrink);
    _mm512_storeu_pd(to, _mm512_fmadd_pd(_mm512_loadu_pd(to), _mm512_cvtps_pd(f), _mm512_cvtps_pd(a)));
  }
}

void logit_stats(const LogitTile &t, const float *own, LogitPanel *s) {
  for (int64_t r = 0; r < t.rows; r += kLanes)
    if (t.classes == kTileRows)
      stats_of<true>(t, r, own, s);
    else
      stats_of<false>(t, r, own, s);
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
        F32 g = fast_exp(x - l);
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

// --- attention -----------------------------------------------------------------------------------

void pair_rows(const void *src_, int64_t src_row, int64_t rows, int64_t columns, int64_t width, uint32_t *dst) {
  const uint16_t *src = (const uint16_t *)src_;
  for (int64_t k = 0; 2 * k < rows; k++, src += 2 * src_row)
    for (int64_t c = 0; c < width; c += kLanes) {
      const __mmask16 mask = lanes_of(columns - c), second = 2 * k + 1 < rows ? mask : 0;
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, src + c));
      const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, src + src_row + c));
      _mm512_storeu_si512(dst + k * width + c, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

float dot(int64_t n, const void *a_, const void *b_) {
  const Bf16 *a = (const Bf16 *)a_, *b = (const Bf16 *)b_;
  F32 s = zero();
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    s = s + load_row<full.value>(a + i, lanes) * load_row<full.value>(b + i, lanes);
  });
  return sum_of(s);
}

SIMD_INLINE __mmask16 kept(const uint8_t *keep, __mmask16 valid) {
  return _mm_mask_test_epi8_mask(valid, _mm_maskz_loadu_epi8(valid, keep), _mm_set1_epi8(-1));
}

void exponentials(int64_t n, int64_t padded, const float *scores, float scale, const uint8_t *keep, uint16_t *dst,
                  float *largest, float *sum) {
  F32 most = all(-INFINITY), total = zero();
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 v = load_row<full.value>(scores + i, lanes);
    most = max(full.value ? v : select(first_lanes(lanes), v, most), most);
  });
  *largest = max_of(most);
  const F32 m = all(*largest), f = all(scale);
  for (int64_t i = 0; i < padded; i += kLanes) {
    const __mmask16 valid = lanes_of(n - i);
    const F32 e = select(mask_of(valid), fast_exp((load(scores + i) - m) * f), zero());
    total = total + e;
    __mmask16 stays = valid;
    if (keep && valid) stays = kept(keep + i, valid);
    _mm256_storeu_si256((__m256i *)(dst + i), _mm256_maskz_mov_epi16(stays, bf16_of(e)));
  }
  *sum = sum_of(total);
}

void score_diff(const ScoreRows &s) {
  const F32 scale = all(s.scale), factor = all(s.factor);
  for (int64_t i = 0; i < s.padded; i += kLanes) {
    __m512i p[2], d[2];
    for (int r = 0; r < 2; r++) {
      const __mmask16 valid = lanes_of(s.n[r] - i);
      p[r] = d[r] = _mm512_setzero_si512();
      if (valid) {
        const F32 e = fast_exp(load(s.scores[r] + i) * scale - all(s.lse[r]));
        F32 diff = load(s.diff[r] + i), dropped = e;
        if (s.keep[r]) {
          const Mask stays = mask_of(kept(s.keep[r] + i, valid));
          diff = select(stays, factor * diff, zero());
          dropped = select(stays, factor * e, zero());
        }
        p[r] = _mm512_cvtepu16_epi32(_mm256_maskz_mov_epi16(valid, bf16_of(dropped)));
        d[r] = _mm512_cvtepu16_epi32(_mm256_maskz_mov_epi16(valid, bf16_of(e * (diff - all(s.inner[r])))));
      }
      _mm256_storeu_si256((__m256i *)(s.d_row[r] + i), _mm512_cvtepi32_epi16(d[r]));
    }
    _mm512_storeu_si512(s.p + i, _mm512_or_si512(p[0], _mm512_slli_epi32(p[1], 16)));
    _mm512_storeu_si512(s.d + i, _mm512_or_si512(d[0], _mm512_slli_epi32(d[1], 16)));
  }
}

// --- GELU ----------------------------------------------------------------------------------------

SIMD_INLINE F32 fma(F32 a, F32 b, F32 c) {
  return {{(PartF)_mm512_fmadd_ps((__m512)a.p[0], (__m512)b.p[0], (__m512)c.p[0])}};
}

// The formulas are those of unary_value and derivative in elementwise_simd.h, and of normal in vmath.h.
struct Gelu {
  F32 below, density; // x·below is the value; below + x·density is the derivative
};

template <bool tanh> SIMD_INLINE Gelu gelu_of(F32 x) {
  const F32 square = x * x, one = all(1.0f);
  if (tanh) {
    const F32 e = fast_exp(zero() - x * fma(square, all(kTwoRootCubic), all(kTwoRoot)));
    const F32 below = one / (one + e), slope = fma(square, all(3 * kTwoRootCubic), all(kTwoRoot));
    return {below, below * (one - below) * slope};
  }
  const float q[] = {0.2256773909f,  0.2256298489f,  0.208182038f,   0.1678652025f, 0.1352318251f,  0.04005181897f,
                     0.03110657741f, 0.04698656896f, -0.1694702135f, 0.1130018332f, -0.02426289299f};
  const F32 gauss = fast_exp(square * all(-0.5f)), t = one / fma(abs(x), all(0.28284271f), one);
  F32 y = all(q[10]);
  HT_UNROLL(10)
  for (int i = 9; i >= 0; i--) y = fma(y, t, all(q[i]));
  const F32 tail = all(0.5f) * t * y * gauss;
  return {select(x > zero(), one - tail, tail), gauss * all(0.39894228f)};
}

template <bool tanh> void bias_gelu(int64_t n, const void *src_, const float *bias, void *dst_) {
  const Bf16 *src = (const Bf16 *)src_;
  Bf16 *dst = (Bf16 *)dst_;
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 x = load_row<full.value>(src + i, lanes) + load_row<full.value>(bias + i, lanes);
    store_row<full.value>(dst + i, x * gelu_of<tanh>(x).below, lanes);
  });
}

template <bool tanh>
void bias_gelu_diff(int64_t n, const void *diff_, const void *src_, const float *bias, void *diff_src_,
                    float *diff_bias) {
  const Bf16 *diff = (const Bf16 *)diff_, *src = (const Bf16 *)src_;
  Bf16 *diff_src = (Bf16 *)diff_src_;
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 x = load_row<full.value>(src + i, lanes) + load_row<full.value>(bias + i, lanes);
    const Gelu g = gelu_of<tanh>(x);
    const F32 d = load_row<full.value>(diff + i, lanes) * fma(x, g.density, g.below);
    store_row<full.value>(diff_bias + i, load_row<full.value>(diff_bias + i, lanes) + d, lanes);
    store_row<full.value>(diff_src + i, d, lanes);
  });
}

} // namespace

extern const PairTable pair_table_avx512bf16;
const PairTable pair_table_avx512bf16 = {panels_of<Pair>(2, interleave),
                                         logit_stats,
                                         logit_diff,
                                         sum,
                                         pair_rows,
                                         dot,
                                         exponentials,
                                         score_diff,
                                         {bias_gelu<false>, bias_gelu<true>},
                                         {bias_gelu_diff<false>, bias_gelu_diff<true>}};

} // namespace hetero
