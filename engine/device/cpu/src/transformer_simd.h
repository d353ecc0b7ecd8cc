// transformer_simd.h: TransformerTable for the instruction set of the including file.
#pragma once

#include "elementwise_simd.h"
#include "transformer_table.h"
#include "unroll.h"

namespace hetero {
namespace {

// Returns a·b + c, with one rounding if the instruction set has a fused multiply-add.
SIMD_INLINE F32 fused(F32 a, F32 b, F32 c) {
#if SIMD_AVX512
  return {{(PartF)_mm512_fmadd_ps((__m512)a.p[0], (__m512)b.p[0], (__m512)c.p[0])}};
#elif SIMD_AVX2
  for (int i = 0; i < kParts; i++) c.p[i] = (PartF)_mm256_fmadd_ps((__m256)a.p[i], (__m256)b.p[i], (__m256)c.p[i]);
  return c;
#else
  return a * b + c;
#endif
}

// --- products ------------------------------------------------------------------------------------

template <int rows> SIMD_INLINE void product_rows(const SmallProduct &p) {
  F32 left[rows], right[rows];
  HT_UNROLL(8)
  for (int r = 0; r < rows; r++) {
    left[r] = p.add ? load(p.out + r * p.out_row) : zero();
    right[r] = p.add ? load(p.out + r * p.out_row + kLanes) : zero();
  }
  const float *x = p.x, *c = p.coefficients;
  for (int64_t i = 0; i < p.k; i++, x += p.x_row, c += p.step) {
    const F32 a = load(x), b = load(x + kLanes);
    HT_UNROLL(8)
    for (int r = 0; r < rows; r++) {
      const F32 f = all(c[r * p.row]);
      left[r] = fused(f, a, left[r]);
      right[r] = fused(f, b, right[r]);
    }
  }
  HT_UNROLL(8)
  for (int r = 0; r < rows; r++) {
    store(p.out + r * p.out_row, left[r]);
    store(p.out + r * p.out_row + kLanes, right[r]);
  }
}

void product(const SmallProduct &p) {
  switch (p.rows) {
  case 1: return product_rows<1>(p);
  case 2: return product_rows<2>(p);
  case 3: return product_rows<3>(p);
  case 4: return product_rows<4>(p);
  case 5: return product_rows<5>(p);
  case 6: return product_rows<6>(p);
  case 7: return product_rows<7>(p);
  default: return product_rows<8>(p);
  }
}

template <class T> float chain(int64_t n, const void *a_, const void *b_) {
  const T *a = static_cast<const T *>(a_), *b = static_cast<const T *>(b_);
  F32 sum = zero();
  for (int64_t i = 0; i < n; i++) sum = fused(all(to_f32(a[i])), all(to_f32(b[i])), sum);
  return lane(sum, 0);
}

// --- rows ----------------------------------------------------------------------------------------

template <class T> void sum_rows(int64_t n, const float *a, const float *b, const float *c, void *dst_) {
  T *dst = static_cast<T *>(dst_);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    F32 s = load_row<full.value>(a + i, lanes);
    if (b) s = s + load_row<full.value>(b + i, lanes);
    if (c) s = s + load_row<full.value>(c + i, lanes);
    store_row<full.value>(dst + i, s, lanes);
  });
}

template <class T> void add_row(int64_t n, const void *src_, float *sum) {
  const T *src = static_cast<const T *>(src_);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 s = load_row<full.value>(sum + i, lanes) + load_row<full.value>(src + i, lanes);
    store_row<full.value>(sum + i, s, lanes);
  });
}

template <class T> void widen(int64_t n, const void *src_, float factor, float *dst) {
  const T *src = static_cast<const T *>(src_);
  const F32 f = all(factor);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    store_row<full.value>(dst + i, load_row<full.value>(src + i, lanes) * f, lanes);
  });
}

template <class T> void narrow(int64_t n, const float *src, float factor, void *dst_) {
  T *dst = static_cast<T *>(dst_);
  const F32 f = all(factor);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    store_row<full.value>(dst + i, load_row<full.value>(src + i, lanes) * f, lanes);
  });
}

// --- LayerNorm -----------------------------------------------------------------------------------

template <bool full> SIMD_INLINE F32 only(F32 v, int lanes) { return full ? v : select(first_lanes(lanes), v, zero()); }

template <class T>
void normalize(int64_t c, const void *src_, const void *residual_, const float *gamma, const float *beta, float eps,
               void *dst_, void *sum_, float *mean_, float *inverse_) {
  const T *src = static_cast<const T *>(src_), *residual = static_cast<const T *>(residual_);
  T *dst = static_cast<T *>(dst_), *sum = static_cast<T *>(sum_);
  if (residual) {
    each_vector(c, [&](int64_t i, auto full, int lanes) {
      const F32 x = load_row<full.value>(src + i, lanes) + load_row<full.value>(residual + i, lanes);
      store_row<full.value>(sum + i, x, lanes);
    });
    src = sum; // use the rounded sum, because the gradient also reads it
  }
  F32 total = zero(), squares = zero();
  each_vector(c, [&](int64_t i, auto full, int lanes) { total = total + load_row<full.value>(src + i, lanes); });
  const float mean = sum_of(total) / float(c);
  const F32 m = all(mean);
  each_vector(c, [&](int64_t i, auto full, int lanes) {
    const F32 d = only<full.value>(load_row<full.value>(src + i, lanes) - m, lanes);
    squares = squares + d * d;
  });
  const float inverse = 1.0f / ::sqrtf(sum_of(squares) / float(c) + eps);
  const F32 s = all(inverse);
  each_vector(c, [&](int64_t i, auto full, int lanes) {
    const F32 hat = (load_row<full.value>(src + i, lanes) - m) * s;
    const F32 y = hat * load_row<full.value>(gamma + i, lanes) + load_row<full.value>(beta + i, lanes);
    store_row<full.value>(dst + i, y, lanes);
  });
  *mean_ = mean;
  *inverse_ = inverse;
}

template <class T>
void normalize_diff(int64_t c, const void *diff_, const void *x_, float mean, float inverse, const float *gamma,
                    const void *plus_, void *diff_x_, float *diff_gamma, float *diff_beta) {
  const T *diff = static_cast<const T *>(diff_), *x = static_cast<const T *>(x_), *plus = static_cast<const T *>(plus_);
  T *diff_x = static_cast<T *>(diff_x_);
  const F32 m = all(mean), s = all(inverse);
  F32 sum = zero(), product = zero();
  each_vector(c, [&](int64_t i, auto full, int lanes) {
    const F32 d = load_row<full.value>(diff + i, lanes);
    const F32 hat = only<full.value>((load_row<full.value>(x + i, lanes) - m) * s, lanes);
    const F32 g = d * load_row<full.value>(gamma + i, lanes);
    store_row<full.value>(diff_gamma + i, load_row<full.value>(diff_gamma + i, lanes) + d * hat, lanes);
    store_row<full.value>(diff_beta + i, load_row<full.value>(diff_beta + i, lanes) + d, lanes);
    sum = sum + g;
    product = product + g * hat;
  });
  const F32 mean_g = all(sum_of(sum) / float(c)), mean_product = all(sum_of(product) / float(c));
  each_vector(c, [&](int64_t i, auto full, int lanes) {
    const F32 hat = (load_row<full.value>(x + i, lanes) - m) * s;
    const F32 g = load_row<full.value>(diff + i, lanes) * load_row<full.value>(gamma + i, lanes);
    F32 y = s * (g - mean_g - hat * mean_product);
    if (plus) y = y + load_row<full.value>(plus + i, lanes);
    store_row<full.value>(diff_x + i, y, lanes);
  });
}

// --- GELU ----------------------------------------------------------------------------------------

template <class T, int func> void bias_gelu(int64_t n, const void *src_, const float *bias, void *dst_) {
  const T *src = static_cast<const T *>(src_);
  T *dst = static_cast<T *>(dst_);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 x = load_row<full.value>(src + i, lanes) + load_row<full.value>(bias + i, lanes);
    store_row<full.value>(dst + i, unary_value<func>(x), lanes);
  });
}

template <class T, int func>
void bias_gelu_diff(int64_t n, const void *diff_, const void *src_, const float *bias, void *diff_src_,
                    float *diff_bias) {
  const T *diff = static_cast<const T *>(diff_), *src = static_cast<const T *>(src_);
  T *diff_src = static_cast<T *>(diff_src_);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 x = load_row<full.value>(src + i, lanes) + load_row<full.value>(bias + i, lanes);
    const F32 d = load_row<full.value>(diff + i, lanes) * derivative<func>(x);
    store_row<full.value>(diff_bias + i, load_row<full.value>(diff_bias + i, lanes) + d, lanes);
    store_row<full.value>(diff_src + i, d, lanes);
  });
}

// --- attention -----------------------------------------------------------------------------------

void exponentials(int64_t n, int64_t padded, float *scores, float *largest, float *sum) {
  F32 most = all(-INFINITY), total = zero();
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 v = load_row<full.value>(scores + i, lanes);
    most = max(full.value ? v : select(first_lanes(lanes), v, most), most);
  });
  *largest = max_of(most);
  const F32 m = all(*largest);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 e = only<full.value>(exp(load_row<full.value>(scores + i, lanes) - m), lanes);
    total = total + e;
    store_row<full.value>(scores + i, e, lanes);
  });
  for (int64_t i = n; i < padded; i++) scores[i] = 0;
  *sum = sum_of(total);
}

void drop(int64_t n, const uint8_t *keep, float factor, float *p) {
  for (int64_t i = 0; i < n; i++) p[i] = keep[i] ? p[i] * factor : 0.0f;
}

void score_diff(int64_t n, int64_t padded, float *scores, float *diff, float lse, float inner, const uint8_t *keep,
                float factor) {
  const F32 l = all(lse), in = all(inner);
  float factors[kLanes];
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 p = exp(load_row<full.value>(scores + i, lanes) - l);
    F32 m = all(1.0f);
    if (keep) {
      for (int j = 0; j < kLanes; j++) factors[j] = j < lanes && keep[i + j] ? factor : 0.0f;
      m = load(factors);
    }
    const F32 d = p * (m * load_row<full.value>(diff + i, lanes) - in);
    store_row<full.value>(scores + i, m * p, lanes);
    store_row<full.value>(diff + i, d, lanes);
  });
  for (int64_t i = n; i < padded; i++) scores[i] = diff[i] = 0;
}

// --- classifier ----------------------------------------------------------------------------------

void logit_stats(int n, const float *logits, const float *bias, float own, int64_t label, LogitStats *stats) {
  const F32 mine = all(own);
  F32 x[2], most = all(-INFINITY);
  int32_t higher = 0;
  for (int v = 0; v < 2; v++) {
    const int lanes = n - v * kLanes < 0 ? 0 : n - v * kLanes > kLanes ? kLanes : n - v * kLanes;
    const Mask valid = first_lanes(lanes);
    x[v] = load_first(logits + v * kLanes, lanes);
    if (bias) x[v] = x[v] + load_first(bias + v * kLanes, lanes);
    x[v] = select(valid, x[v], all(-INFINITY));
    most = max(x[v], most);
    const int64_t at = label - v * kLanes;
    const uint32_t before = at <= 0 ? 0u : at >= kLanes ? 0xffffu : (1u << at) - 1;
    const uint32_t after = at < 0 ? 0xffffu : at >= kLanes ? 0u : 0xffffu & ~((2u << at) - 1);
    const uint32_t in = bits(valid);
    higher += __builtin_popcount(bits(x[v] >= mine) & before & in) + __builtin_popcount(bits(x[v] > mine) & after & in);
  }
  const float largest = max_of(most);
  if (largest > stats->largest) {
    stats->sum *= double(lane(exp(all(stats->largest - largest)), 0));
    stats->largest = largest;
  }
  const F32 m = all(stats->largest);
  F32 sum = zero();
  for (int v = 0; v < 2; v++) {
    const int lanes = n - v * kLanes < 0 ? 0 : n - v * kLanes > kLanes ? kLanes : n - v * kLanes;
    sum = sum + select(first_lanes(lanes), exp(x[v] - m), zero());
  }
  stats->sum += double(sum_of(sum));
  stats->higher += higher;
}

template <class T>
void key_scores(int64_t n, int64_t d, const void *q_, const void *rows, int64_t row_bytes, float scale, float *scores) {
  const T *q = static_cast<const T *>(q_);
  for (int64_t j = 0; j < n; j++) {
    const T *row = reinterpret_cast<const T *>(static_cast<const char *>(rows) + j * row_bytes);
    F32 sum = zero();
    each_vector(d, [&](int64_t i, auto full, int lanes) {
      sum = sum + load_row<full.value>(q + i, lanes) * load_row<full.value>(row + i, lanes);
    });
    scores[j] = sum_of(sum) * scale;
  }
}

template <class T>
void add_values(int64_t n, int64_t d, const float *p, const void *rows, int64_t row_bytes, float *sum) {
  for (int64_t j = 0; j < n; j++) {
    const T *row = reinterpret_cast<const T *>(static_cast<const char *>(rows) + j * row_bytes);
    const F32 f = all(p[j]);
    each_vector(d, [&](int64_t i, auto full, int lanes) {
      const F32 s = load_row<full.value>(sum + i, lanes) + f * load_row<full.value>(row + i, lanes);
      store_row<full.value>(sum + i, s, lanes);
    });
  }
}

void logit_diff(int n, float *logits, const float *bias, float lse, float scale, int64_t label) {
  const F32 l = all(lse), f = all(scale), one = all(1.0f);
  for (int v = 0; v < 2; v++) {
    const int lanes = n - v * kLanes < 0 ? 0 : n - v * kLanes > kLanes ? kLanes : n - v * kLanes;
    F32 x = load_first(logits + v * kLanes, lanes);
    if (bias) x = x + load_first(bias + v * kLanes, lanes);
    F32 g = exp(x - l);
    const int64_t at = label - v * kLanes;
    if (at >= 0 && at < kLanes) g = select(mask_of(uint16_t(1u << at)), g - one, g);
    store_first(logits + v * kLanes, g * f, lanes);
  }
}

constexpr TransformerTable transformer_table() {
  return {product,
          {chain<float>, chain<Bf16>},
          {sum_rows<float>, sum_rows<Bf16>},
          {add_row<float>, add_row<Bf16>},
          {widen<float>, widen<Bf16>},
          {narrow<float>, narrow<Bf16>},
          {normalize<float>, normalize<Bf16>},
          {normalize_diff<float>, normalize_diff<Bf16>},
          {{bias_gelu<float, HT_GELU>, bias_gelu<float, HT_GELU_TANH>},
           {bias_gelu<Bf16, HT_GELU>, bias_gelu<Bf16, HT_GELU_TANH>}},
          {{bias_gelu_diff<float, HT_GELU>, bias_gelu_diff<float, HT_GELU_TANH>},
           {bias_gelu_diff<Bf16, HT_GELU>, bias_gelu_diff<Bf16, HT_GELU_TANH>}},
          exponentials,
          drop,
          score_diff,
          {key_scores<float>, key_scores<Bf16>},
          {add_values<float>, add_values<Bf16>},
          logit_stats,
          logit_diff};
}

} // namespace
} // namespace hetero
