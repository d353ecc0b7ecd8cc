// optim_simd.h: the arithmetic of the optimizers. Each operation below is one correctly rounded f32 operation, in the
// order of engine/device/op_optim.go. The library is compiled without contraction to fused multiply-adds, so a product
// and a sum are rounded separately.
#pragma once

#include "elementwise_simd.h"

namespace hetero {
namespace {

typedef double PartD __attribute__((vector_size(4 * kPartLanes)));

// Loads as many floats as a register holds doubles, and widens them.
SIMD_INLINE PartD load_wide(const float *x) {
#if SIMD_AVX512
  return (PartD)_mm512_cvtps_pd(_mm256_loadu_ps(x));
#elif SIMD_AVX2
  return (PartD)_mm256_cvtps_pd(_mm_loadu_ps(x));
#else
  return PartD{x[0], x[1]};
#endif
}

// Returns the sum of x². Squares of f32 are exact in f64. Element i is added to chain i%32. Then the second half of the
// chains is added to the first half, until one chain is left.
double sum_squares(int64_t n, const float *x) {
  constexpr int kChains = 32, kWide = kPartLanes / 2, kVectors = kChains / kWide;
  PartD sum[kVectors] = {};
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    for (int v = 0; v < kVectors; v++) {
      const PartD wide = load_wide(x + i + v * kWide);
      sum[v] += wide * wide;
    }
  }
  double chain[kChains];
  memcpy(chain, sum, sizeof chain);
  for (int c = 0; i < n; i++, c++) chain[c] += double(x[i]) * double(x[i]);
  for (int half = kChains / 2; half > 0; half /= 2)
    for (int c = 0; c < half; c++) chain[c] += chain[c + half];
  return chain[0];
}

// One step of SGD, for each element w of value:
//
//     g = grad·scale
//     g = g + decay·w
//     m = momentum·m + g
//     u = nesterov ? g + momentum·m : m
//     w = w - rate·u
template <bool has_moment, bool nesterov>
void sgd(int64_t n, const OptimFactors &f, float *value, const float *grad, float *moment) {
  const F32 scale = all(f.scale), decay = all(f.decay), rate = all(f.rate), momentum = all(f.momentum);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 w = load_row<full.value>(value + i, lanes);
    const F32 g = load_row<full.value>(grad + i, lanes) * scale + decay * w;
    const F32 m = momentum * (has_moment ? load_row<full.value>(moment + i, lanes) : zero()) + g;
    const F32 u = nesterov ? g + momentum * m : m;
    if (has_moment) store_row<full.value>(moment + i, m, lanes);
    store_row<full.value>(value + i, w - rate * u, lanes);
  });
}

// One step of AdamW, for each element w of value:
//
//     g = grad·scale
//     w = w - decay·w
//     m = beta1·m + rest1·g
//     v = beta2·v + (rest2·g)·g
//     w = w - rate·(m / (sqrt(v)/root2 + eps))
void adamw(int64_t n, const OptimFactors &f, float *value, const float *grad, float *first, float *second) {
  const F32 scale = all(f.scale), decay = all(f.decay), rate = all(f.rate), root2 = all(f.root2), eps = all(f.eps);
  const F32 beta1 = all(f.beta1), rest1 = all(f.rest1), beta2 = all(f.beta2), rest2 = all(f.rest2);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 g = load_row<full.value>(grad + i, lanes) * scale;
    const F32 old = load_row<full.value>(value + i, lanes);
    const F32 w = old - decay * old;
    const F32 m = beta1 * load_row<full.value>(first + i, lanes) + rest1 * g;
    const F32 v = beta2 * load_row<full.value>(second + i, lanes) + (rest2 * g) * g;
    store_row<full.value>(first + i, m, lanes);
    store_row<full.value>(second + i, v, lanes);
    store_row<full.value>(value + i, w - rate * (m / (sqrt(v) / root2 + eps)), lanes);
  });
}

constexpr OptimTable optim_table() {
  return {sum_squares, {{sgd<false, false>, sgd<false, true>}, {sgd<true, false>, sgd<true, true>}}, adamw};
}

} // namespace
} // namespace hetero
