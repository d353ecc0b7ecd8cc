// gelu.h: GELU by erf and by tanh, with their derivatives.
#pragma once

#include "gpu.h"

namespace hetero {

__device__ inline float gelu(bool by_tanh, float x) {
  constexpr float kRoot2 = 0.70710678118654752440f, kGelu = 0.79788456080286535588f;
  if (!by_tanh) return 0.5f * x * (1 + erff(x * kRoot2));
  return 0.5f * x * (1 + tanhf(kGelu * (x + 0.044715f * x * x * x)));
}

__device__ inline float gelu_derivative(bool by_tanh, float x) {
  constexpr float kRoot2 = 0.70710678118654752440f, kDensity = 0.39894228040143267794f, kGelu = 0.79788456080286535588f;
  if (!by_tanh) return 0.5f * (1 + erff(x * kRoot2)) + x * kDensity * expf(-0.5f * x * x);
  const float t = tanhf(kGelu * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kGelu * (1 + 3 * 0.044715f * x * x);
}

} // namespace hetero
