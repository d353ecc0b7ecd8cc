// elementwise_simd.h: unary, binary and scale on n elements in memory order, for any layout.
#pragma once

#include "simd_table.h"
#include "vmath.h"

namespace hetero {
namespace {

// Calls step(i, Bool<full>, lanes) for each sixteen elements, starting at element i. The last call gets the remainder.
template <class Step> SIMD_INLINE void each_vector(int64_t n, Step step) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, Bool<true>{}, kLanes);
  if (i < n) step(i, Bool<false>{}, int(n - i));
}

// Return the larger and the smaller value of each lane. The result is NaN if either value is NaN.
SIMD_INLINE F32 max_or_nan(F32 a, F32 b) { return select(unordered(a, a), a, max(a, b)); }
SIMD_INLINE F32 min_or_nan(F32 a, F32 b) { return select(unordered(a, a), a, min(a, b)); }

// GELU by tanh:
//
//     gelu(x) = x/2·(1 + tanh(u)) = x·logistic(2u),  u = sqrt(2/π)·(x + 0.044715·x³)
constexpr float kTwoRoot = 1.59576912f, kTwoRootCubic = 0.0713548162f; // 2·sqrt(2/π); 2·sqrt(2/π)·0.044715
SIMD_INLINE F32 two_u(F32 x) { return x * (all(kTwoRoot) + all(kTwoRootCubic) * (x * x)); }

template <int func> SIMD_INLINE F32 unary_value(F32 x) {
  if (func == HT_RELU) return max(zero(), x);
  if (func == HT_SIGMOID) return logistic(x).below;
  if (func == HT_TANH) return tanh(x);
  if (func == HT_GELU) return x * normal(x).below;
  if (func == HT_GELU_TANH) return x * logistic(two_u(x)).below;
  if (func == HT_EXP) return exp(x);
  if (func == HT_LOG) return each_lane(x, [](float v) { return ::logf(v); });
  if (func == HT_SQRT) return sqrt(x);
  if (func == HT_SQUARE) return x * x;
  if (func == HT_NEG) return float_of(bits_of(x) ^ all(INT32_MIN));
  return abs(x);
}

template <int func> SIMD_INLINE F32 derivative(F32 x) {
  const F32 one = all(1.0f);
  if (func == HT_RELU) return select(x > zero(), one, zero());
  if (func == HT_SIGMOID) return logistic(x).density;
  if (func == HT_TANH) return all(4.0f) * logistic(x + x).density; // 1 - tanh²
  if (func == HT_GELU) {
    const Distribution n = normal(x);
    return n.below + x * n.density;
  }
  if (func == HT_GELU_TANH) {
    const Distribution l = logistic(two_u(x));
    const F32 slope = all(kTwoRoot) + all(3 * kTwoRootCubic) * (x * x); // derivative of 2u
    return l.below + (x * slope) * l.density;
  }
  if (func == HT_EXP) return exp(x);
  if (func == HT_LOG) return one / x;
  if (func == HT_SQRT) return all(0.5f) / sqrt(x);
  if (func == HT_SQUARE) return x + x;
  if (func == HT_NEG) return all(-1.0f);
  return select(x > zero(), one, select(zero() > x, all(-1.0f), zero()));
}

template <int func> SIMD_INLINE F32 binary_value(F32 a, F32 b) {
  if (func == HT_ADD) return a + b;
  if (func == HT_SUB) return a - b;
  if (func == HT_MUL) return a * b;
  if (func == HT_DIV) return a / b;
  if (func == HT_MAX) return max_or_nan(a, b);
  return min_or_nan(a, b);
}

template <class T, int func> void unary(int64_t n, const void *src_, void *dst_) {
  const T *src = static_cast<const T *>(src_);
  T *dst = static_cast<T *>(dst_);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    store_row<full.value>(dst + i, unary_value<func>(load_row<full.value>(src + i, lanes)), lanes);
  });
}

template <class T, int func> void unary_diff(int64_t n, const void *diff_dst_, const void *src_, void *diff_src_) {
  const T *diff_dst = static_cast<const T *>(diff_dst_), *src = static_cast<const T *>(src_);
  T *diff_src = static_cast<T *>(diff_src_);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 d = load_row<full.value>(diff_dst + i, lanes), x = load_row<full.value>(src + i, lanes);
    store_row<full.value>(diff_src + i, d * derivative<func>(x), lanes);
  });
}

// Computes dst = func(a, b), element by element. If repeat is true, b is a single element.
template <class T, int func, bool repeat> void binary(int64_t n, const void *a_, const void *b_, void *dst_) {
  const T *a = static_cast<const T *>(a_), *b = static_cast<const T *>(b_);
  T *dst = static_cast<T *>(dst_);
  const F32 one = all(to_f32(*b));
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 y = repeat ? one : load_row<full.value>(b + (repeat ? 0 : i), lanes);
    store_row<full.value>(dst + i, binary_value<func>(load_row<full.value>(a + i, lanes), y), lanes);
  });
}

template <class T> void scale(int64_t n, const void *src_, float factor, void *dst_) {
  const T *src = static_cast<const T *>(src_);
  T *dst = static_cast<T *>(dst_);
  const F32 f = all(factor);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    store_row<full.value>(dst + i, load_row<full.value>(src + i, lanes) * f, lanes);
  });
}

template <class T, int func> constexpr void fill_unary(ElementwiseTable &t, int bf16) {
  t.unary[bf16][func] = unary<T, func>;
  t.unary_diff[bf16][func] = unary_diff<T, func>;
  if constexpr (func > 0) fill_unary<T, func - 1>(t, bf16);
}

template <class T, int func> constexpr void fill_binary(ElementwiseTable &t, int bf16) {
  t.binary[bf16][func][0] = binary<T, func, false>;
  t.binary[bf16][func][1] = binary<T, func, true>;
  if constexpr (func > 0) fill_binary<T, func - 1>(t, bf16);
}

constexpr ElementwiseTable elementwise_table() {
  ElementwiseTable t{};
  fill_unary<float, HT_ABS>(t, 0);
  fill_unary<Bf16, HT_ABS>(t, 1);
  fill_binary<float, HT_MIN>(t, 0);
  fill_binary<Bf16, HT_MIN>(t, 1);
  t.scale[0] = scale<float>;
  t.scale[1] = scale<Bf16>;
  return t;
}

} // namespace
} // namespace hetero
