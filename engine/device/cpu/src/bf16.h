// bf16.h: bfloat16, the upper half of an f32, one element at a time. simd.h converts vectors.
//
// The bits equal those of tensor.BF16FromF32. The instruction vcvtneps2bf16, which simd.h uses if available, gives
// other bits only for numbers below 2^-126: it rounds them to zero. All functions are static, because source files for
// several instruction sets include this header.
#pragma once

#include <stdint.h>
#include <string.h>

namespace hetero {

static inline float bf16_to_f32(uint16_t b) {
  const uint32_t u = uint32_t(b) << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

// Rounds to nearest even; a NaN stays a (quiet) NaN.
static inline uint16_t f32_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40u);
  return uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// An element of a bf16 tensor, so that kernels can be templates of the element type.
struct Bf16 {
  uint16_t bits;
};

static inline float to_f32(float x) { return x; }
static inline float to_f32(Bf16 x) { return bf16_to_f32(x.bits); }
static inline void put(float *a, float x) { *a = x; }
static inline void put(Bf16 *a, float x) { a->bits = f32_to_bf16(x); }

} // namespace hetero
