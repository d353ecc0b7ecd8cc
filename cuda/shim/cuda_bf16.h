// cuda_bf16.h: bfloat16 for the host (cuda_runtime.h).
#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 v) {
  const uint32_t wide = uint32_t{v.bits} << 16;
  float f;
  std::memcpy(&f, &wide, sizeof f);
  return f;
}

// Rounds to nearest, ties to even; NaN stays NaN.
inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof f);
  if (f != f) return {0x7fff};
  bits += 0x7fff + (bits >> 16 & 1);
  return {static_cast<uint16_t>(bits >> 16)};
}
