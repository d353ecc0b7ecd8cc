// cuda_fp16.h: half precision for the host (cuda_runtime.h).
#pragma once

#include <cstdint>
#include <cstring>

struct __half {
  uint16_t bits;
};

inline float __half2float(__half v) {
  const uint32_t sign = uint32_t{v.bits & 0x8000u} << 16;
  const uint32_t rest = uint32_t{v.bits & 0x7fffu}
                        << 13; // move exponent and fraction into place; the exponent still has the bias of half
  uint32_t bits;
  float f;
  if ((v.bits & 0x7c00u) == 0x7c00u) {
    bits = sign | 0x7f800000u | rest;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  }
  std::memcpy(&f, &rest, sizeof f);
  f *= 0x1p112f; // the biases differ by 112; the result is exact, also for subnormal numbers
  std::memcpy(&bits, &f, sizeof f);
  bits |= sign;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// Rounds to nearest, ties to even. A value that is too large becomes infinite; NaN stays NaN.
inline __half __float2half_rn(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof f);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return {0x7fff};
  if (bits >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)}; // 65520 and above
  if (bits < 0x38800000) { // below 2⁻¹⁴: a subnormal number, in steps of 2⁻²⁴
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0x1p-1f; // the sum is rounded at 2⁻²⁴, to nearest even
    std::memcpy(&bits, &magnitude, sizeof bits);
    return {static_cast<uint16_t>(sign | (bits - 0x3f000000))};
  }
  bits += 0xfff + (bits >> 13 & 1);
  return {static_cast<uint16_t>(sign | (bits - 0x38000000) >> 13)};
}
