// vmath.h: exp, tanh, the logistic function and the normal distribution, on sixteen lanes.
//
// Errors are a few units in the last place, or, for normal().below, 1e-7 if that is larger. Infinities and NaN give the
// results of <math.h>. Polynomials that are not series were fitted at Chebyshev nodes, to 4e-9 or better.
#pragma once

#include "simd.h"

namespace hetero {
namespace {

template <int n> SIMD_INLINE F32 polynomial(F32 x, const float (&coefficients)[n]) { // lowest power first
  F32 y = all(coefficients[n - 1]);
  for (int i = n - 2; i >= 0; i--) y = y * x + all(coefficients[i]);
  return y;
}

// Returns 2^n for an integer n in [-126, 127]. The argument is n + 1.5·2^23, an f32 whose low bits are those of n.
SIMD_INLINE F32 power_of_two(F32 shifted) { return float_of((bits_of(shifted) << 23) + all(0x3f800000)); }

// Computes exp(x) = 2^n·exp(r) with |r| <= ln(2)/2. exp(r) is the series up to r^7/7!. 2^n is the product of two
// factors, because it may exceed the range of normal f32 numbers.
SIMD_INLINE F32 exp(F32 x) {
  const F32 shift = all(12582912.0f); // 1.5·2^23: adding this number rounds to an integer
  const F32 c = max(all(-104.0f), min(all(89.0f), x));
  const F32 n = (c * all(1.44269504f) + shift) - shift;
  // ln(2) is the sum of two parts. The first part has so few bits that its product with n is exact.
  const F32 r = (c - n * all(0.693359375f)) - n * all(-2.12194440e-4f);
  const float series[] = {1.0f, 1.0f, 1.0f / 2, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040};
  const F32 half = n * all(0.5f) + shift, rest = (n - (half - shift)) + shift;
  return polynomial(r, series) * power_of_two(half) * power_of_two(rest);
}

// A distribution: its density at x and its probability below x.
struct Distribution {
  F32 density, below;
};

// The logistic function and its derivative:
//
//     below = 1/(1 + exp(-x))
//     density = exp(-|x|)/(1 + exp(-|x|))²
//
// The formula of the density keeps the accuracy that 1 - below would lose.
SIMD_INLINE Distribution logistic(F32 x) {
  const F32 e = exp(zero() - abs(x)), whole = all(1.0f) + e;
  return {e / (whole * whole), select(x > zero(), all(1.0f), e) / whole};
}

SIMD_INLINE F32 tanh(F32 x) {
  const float odd[] = {-0.333333333f, 0.133333242f, -0.05396470045f, 0.02181844913f, -0.008526333058f, 0.002526390711f};
  const F32 a = abs(x), square = x * x;
  const F32 near_zero = x + x * square * polynomial(square, odd);
  const F32 far = all(1.0f) - all(2.0f) / (exp(a + a) + all(1.0f));
  return select(all(0.55f) > a, near_zero, with_sign(far, x));
}

// The standard normal distribution:
//
//     density = exp(-x²/2)/sqrt(2π)
SIMD_INLINE Distribution normal(F32 x) {
  // `below` follows from erfc(a), for a = |x|/sqrt(2):
  //
  //     exp(a²)·erfc(a) = t·Q(t),  t = 1/(1 + 0.4·a),  Q: the polynomial q
  const float q[] = {0.2256773909f,  0.2256298489f,  0.208182038f,   0.1678652025f, 0.1352318251f,  0.04005181897f,
                     0.03110657741f, 0.04698656896f, -0.1694702135f, 0.1130018332f, -0.02426289299f};
  const F32 gauss = exp(x * x * all(-0.5f));
  const F32 t = all(1.0f) / (all(1.0f) + abs(x) * all(0.28284271f));
  const F32 tail = all(0.5f) * t * polynomial(t, q) * gauss;
  return {gauss * all(0.39894228f), select(x > zero(), all(1.0f) - tail, tail)};
}

// Applies a function of <math.h> to each lane, for functions that are too rare for a vector version.
template <class Function> SIMD_INLINE F32 each_lane(F32 x, Function f) {
  float lanes[kLanes];
  store(lanes, x);
  for (int l = 0; l < kLanes; l++) lanes[l] = f(lanes[l]);
  return load(lanes);
}

} // namespace
} // namespace hetero
