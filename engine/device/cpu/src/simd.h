// simd.h: vectors of sixteen f32 lanes, for the instruction set of the including file.
//
// A vector is one register with AVX-512, two with AVX2, and four otherwise (SSE2, NEON). Kernels are written once on
// these types. They are compiled in simd_generic.cc, simd_avx2.cc, simd_avx512.cc and simd_avx512bf16.cc. Kernels do
// not use fused multiply-adds or approximate operations. Every lane has the result of IEEE f32 arithmetic, so results
// are bit-equal for all instruction sets. The only exception is the bf16 instruction of AVX-512, which stores denormal
// numbers as zeros.
//
// All code is in unnamed namespaces and includes only C headers. If a function had external linkage, the linker could
// use its AVX-512 version for the whole library. The program would then crash on a CPU without AVX-512.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
// GCC warns about functions with vectors as arguments. All functions in this file are inlined, so no call passes a
// vector.
#pragma GCC diagnostic ignored "-Wpsabi"
// GCC 12 warns about undefined values inside its own AVX-512 intrinsics, which are deliberate.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bf16.h"

#define SIMD_INLINE inline __attribute__((always_inline))

namespace hetero {
namespace {

constexpr int kLanes = 16;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define SIMD_AVX512 1
constexpr int kPartLanes = 16;
#elif defined(__AVX2__)
#define SIMD_AVX2 1
constexpr int kPartLanes = 8;
#else
constexpr int kPartLanes = 4;
#endif
constexpr int kParts = kLanes / kPartLanes;

typedef float PartF __attribute__((vector_size(4 * kPartLanes)));
typedef int32_t PartI __attribute__((vector_size(4 * kPartLanes)));

struct F32 {
  PartF p[kParts];
};
struct I32 {
  PartI p[kParts];
};

// --- arithmetic ----------------------------------------------------------------------------------

#define SIMD_OPERATOR(type, op)                                                                                        \
  SIMD_INLINE type operator op(type a, type b) {                                                                       \
    for (int i = 0; i < kParts; i++) a.p[i] = a.p[i] op b.p[i];                                                        \
    return a;                                                                                                          \
  }
SIMD_OPERATOR(F32, +)
SIMD_OPERATOR(F32, -)
SIMD_OPERATOR(F32, *)
SIMD_OPERATOR(F32, /)
SIMD_OPERATOR(I32, +)
SIMD_OPERATOR(I32, -)
SIMD_OPERATOR(I32, &)
SIMD_OPERATOR(I32, |)
SIMD_OPERATOR(I32, ^)
#undef SIMD_OPERATOR

SIMD_INLINE F32 all(float x) {
  F32 r;
  for (int i = 0; i < kParts; i++) r.p[i] = x - PartF{};
  return r;
}

SIMD_INLINE I32 all(int32_t x) {
  I32 r;
  for (int i = 0; i < kParts; i++) r.p[i] = x - PartI{};
  return r;
}

SIMD_INLINE F32 zero() { return all(0.0f); }

SIMD_INLINE I32 operator<<(I32 a, int n) {
  for (int i = 0; i < kParts; i++) a.p[i] = a.p[i] << n;
  return a;
}

// Reinterprets the bits of one type as the other type.
SIMD_INLINE I32 bits_of(F32 a) {
  I32 r;
  for (int i = 0; i < kParts; i++) r.p[i] = (PartI)a.p[i];
  return r;
}

SIMD_INLINE F32 float_of(I32 a) {
  F32 r;
  for (int i = 0; i < kParts; i++) r.p[i] = (PartF)a.p[i];
  return r;
}

SIMD_INLINE F32 abs(F32 a) { return float_of(bits_of(a) & all(0x7fffffff)); }

// Returns `a` with the sign of b. `a` must not be negative.
SIMD_INLINE F32 with_sign(F32 a, F32 b) { return float_of(bits_of(a) | (bits_of(b) & all(INT32_MIN))); }

SIMD_INLINE F32 sqrt(F32 a) {
  for (int i = 0; i < kParts; i++) {
#if SIMD_AVX512
    a.p[i] = (PartF)_mm512_sqrt_ps((__m512)a.p[i]);
#elif SIMD_AVX2
    a.p[i] = (PartF)_mm256_sqrt_ps((__m256)a.p[i]);
#else
    for (int j = 0; j < kPartLanes; j++) a.p[i][j] = ::sqrtf(a.p[i][j]);
#endif
  }
  return a;
}

// --- masks ---------------------------------------------------------------------------------------
//
//   a > b, a >= b, a == b   true or false for each lane; false if a or b is NaN
//   unordered(a, b)         a or b is NaN
//   beats(a, b)             a > b, or only a is NaN; compares for a maximum that keeps NaN
//   select(m, a, b)         m ? a : b for each lane
//   bits(m), mask_of(bits)  convert between a mask and bits; bit i is lane i

#if SIMD_AVX512
struct Mask {
  uint16_t k;
};
SIMD_INLINE Mask operator>(F32 a, F32 b) { return {_mm512_cmp_ps_mask((__m512)a.p[0], (__m512)b.p[0], _CMP_GT_OQ)}; }
SIMD_INLINE Mask operator>=(F32 a, F32 b) { return {_mm512_cmp_ps_mask((__m512)a.p[0], (__m512)b.p[0], _CMP_GE_OQ)}; }
SIMD_INLINE Mask unordered(F32 a, F32 b) { return {_mm512_cmp_ps_mask((__m512)a.p[0], (__m512)b.p[0], _CMP_UNORD_Q)}; }
SIMD_INLINE Mask operator==(I32 a, I32 b) { return {_mm512_cmpeq_epi32_mask((__m512i)a.p[0], (__m512i)b.p[0])}; }
SIMD_INLINE Mask beats(F32 a, F32 b) {
  const __mmask16 number = _mm512_cmp_ps_mask((__m512)b.p[0], (__m512)b.p[0], _CMP_ORD_Q);
  return {_mm512_mask_cmp_ps_mask(number, (__m512)a.p[0], (__m512)b.p[0], _CMP_NLE_UQ)};
}
SIMD_INLINE Mask operator|(Mask a, Mask b) { return {uint16_t(a.k | b.k)}; }
SIMD_INLINE Mask operator&(Mask a, Mask b) { return {uint16_t(a.k & b.k)}; }
SIMD_INLINE F32 select(Mask m, F32 a, F32 b) {
  return {{(PartF)_mm512_mask_blend_ps(m.k, (__m512)b.p[0], (__m512)a.p[0])}};
}
SIMD_INLINE I32 select(Mask m, I32 a, I32 b) {
  return {{(PartI)_mm512_mask_blend_epi32(m.k, (__m512i)b.p[0], (__m512i)a.p[0])}};
}
SIMD_INLINE uint16_t bits(Mask m) { return m.k; }
SIMD_INLINE Mask mask_of(uint16_t bits) { return {bits}; }
#else
struct Mask {
  PartI p[kParts]; // each lane is 0 or -1
};
#define SIMD_COMPARE(type, op)                                                                                         \
  SIMD_INLINE Mask operator op(type a, type b) {                                                                       \
    Mask m;                                                                                                            \
    for (int i = 0; i < kParts; i++) m.p[i] = a.p[i] op b.p[i];                                                        \
    return m;                                                                                                          \
  }
SIMD_COMPARE(F32, >)
SIMD_COMPARE(F32, >=)
SIMD_COMPARE(I32, ==)
#undef SIMD_COMPARE
SIMD_INLINE Mask operator|(Mask a, Mask b) {
  for (int i = 0; i < kParts; i++) a.p[i] |= b.p[i];
  return a;
}
SIMD_INLINE Mask operator&(Mask a, Mask b) {
  for (int i = 0; i < kParts; i++) a.p[i] &= b.p[i];
  return a;
}
SIMD_INLINE Mask unordered(F32 a, F32 b) {
  Mask m;
  for (int i = 0; i < kParts; i++) m.p[i] = (a.p[i] != a.p[i]) | (b.p[i] != b.p[i]);
  return m;
}
SIMD_INLINE Mask beats(F32 a, F32 b) { return (a > b) | (unordered(a, a) & (b >= b)); }
SIMD_INLINE I32 select(Mask m, I32 a, I32 b) {
  for (int i = 0; i < kParts; i++) a.p[i] = (a.p[i] & m.p[i]) | (b.p[i] & ~m.p[i]);
  return a;
}
SIMD_INLINE F32 select(Mask m, F32 a, F32 b) { return float_of(select(m, bits_of(a), bits_of(b))); }
SIMD_INLINE uint16_t bits(Mask m) {
  uint32_t r = 0;
  for (int i = 0; i < kParts; i++) {
#if SIMD_AVX2
    r |= uint32_t(_mm256_movemask_ps((__m256)m.p[i])) << (8 * i);
#elif defined(__SSE2__)
    r |= uint32_t(_mm_movemask_ps((__m128)m.p[i])) << (4 * i);
#else
    for (int j = 0; j < kPartLanes; j++) r |= uint32_t(m.p[i][j] & 1) << (kPartLanes * i + j);
#endif
  }
  return uint16_t(r);
}
SIMD_INLINE Mask mask_of(uint16_t bits) {
  Mask m;
  for (int i = 0; i < kParts; i++) {
    PartI lane;
    for (int j = 0; j < kPartLanes; j++) lane[j] = 1 << (kPartLanes * i + j);
    m.p[i] = (lane & int32_t(bits)) == lane;
  }
  return m;
}
#endif

SIMD_INLINE Mask first_lanes(int n) { return mask_of(uint16_t((1u << n) - 1)); }

// max returns the larger and min the smaller value of each lane. Both return b if a value is NaN or both values are
// equal.
SIMD_INLINE F32 max(F32 a, F32 b) {
#if SIMD_AVX512
  return {{(PartF)_mm512_max_ps((__m512)a.p[0], (__m512)b.p[0])}};
#else
  return select(a > b, a, b);
#endif
}
SIMD_INLINE F32 min(F32 a, F32 b) {
#if SIMD_AVX512
  return {{(PartF)_mm512_min_ps((__m512)a.p[0], (__m512)b.p[0])}};
#else
  return select(b > a, a, b);
#endif
}

// --- memory: any alignment -----------------------------------------------------------------------

// A PartF at any address. With AVX2, memcpy of a whole F32 would go through the stack.
typedef float PartAnywhere __attribute__((vector_size(4 * kPartLanes), aligned(4), may_alias));

SIMD_INLINE F32 load(const float *a) {
  F32 r;
  for (int i = 0; i < kParts; i++) r.p[i] = *(const PartAnywhere *)(a + kPartLanes * i);
  return r;
}

SIMD_INLINE void store(float *a, F32 v) {
  for (int i = 0; i < kParts; i++) *(PartAnywhere *)(a + kPartLanes * i) = v.p[i];
}

SIMD_INLINE F32 load(const Bf16 *a) {
#if SIMD_AVX512
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)a));
  return {{(PartF)_mm512_slli_epi32(wide, 16)}};
#elif SIMD_AVX2
  F32 r;
  for (int i = 0; i < kParts; i++)
    r.p[i] = (PartF)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(a + 8 * i))), 16);
  return r;
#else
  float wide[kLanes];
  for (int i = 0; i < kLanes; i++) wide[i] = to_f32(a[i]);
  return load(wide);
#endif
}

#if !defined(__AVX512BF16__)
// Returns the bf16 bits of each lane; see bf16.h.
SIMD_INLINE I32 bf16_bits(F32 v) {
  typedef uint32_t PartU __attribute__((vector_size(4 * kPartLanes)));
  I32 rounded, nan;
  for (int i = 0; i < kParts; i++) {
    const PartU u = (PartU)v.p[i];
    rounded.p[i] = (PartI)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    nan.p[i] = (PartI)(u >> 16 | 0x40);
  }
  return select(unordered(v, v), nan, rounded);
}
#endif

#if SIMD_AVX512
SIMD_INLINE __m256i bf16_of(F32 v) {
#if defined(__AVX512BF16__)
  return (__m256i)_mm512_cvtneps_pbh((__m512)v.p[0]);
#else
  return _mm512_cvtepi32_epi16((__m512i)bf16_bits(v).p[0]);
#endif
}
#endif

SIMD_INLINE void store(Bf16 *a, F32 v) {
#if SIMD_AVX512
  _mm256_storeu_si256((__m256i *)a, bf16_of(v));
#elif SIMD_AVX2
  const I32 r = bf16_bits(v);
  const __m256i packed = _mm256_packus_epi32((__m256i)r.p[0], (__m256i)r.p[1]);
  _mm256_storeu_si256((__m256i *)a, _mm256_permute4x64_epi64(packed, 0xD8));
#else
  const I32 r = bf16_bits(v);
  for (int i = 0; i < kLanes; i++) a[i].bits = uint16_t(r.p[i / kPartLanes][i % kPartLanes]);
#endif
}

// Access the first n lanes (0 <= n <= 16). A load sets the other lanes to zero, and a store does not write them.
template <class T> SIMD_INLINE F32 load_first(const T *a, int n) {
#if SIMD_AVX512
  const __mmask16 k = __mmask16((1u << n) - 1);
  if constexpr (sizeof(T) == 4) return {{(PartF)_mm512_maskz_loadu_ps(k, a)}};
  return {{(PartF)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(k, a)), 16)}};
#else
  T t[kLanes] = {};
  memcpy(t, a, size_t(n) * sizeof(T));
  return load(t);
#endif
}

template <class T> SIMD_INLINE void store_first(T *a, F32 v, int n) {
#if SIMD_AVX512
  const __mmask16 k = __mmask16((1u << n) - 1);
  if constexpr (sizeof(T) == 4)
    _mm512_mask_storeu_ps(a, k, (__m512)v.p[0]);
  else
    _mm256_mask_storeu_epi16(a, k, bf16_of(v));
#else
  T t[kLanes];
  store(t, v);
  memcpy(a, t, size_t(n) * sizeof(T));
#endif
}

// Stores v past the caches. The address must be aligned to the number of stored bytes. Call stream_fence() after the
// last such store.
template <class T> SIMD_INLINE void stream(T *a, F32 v) {
#if SIMD_AVX512
  if constexpr (sizeof(T) == 4)
    _mm512_stream_ps((float *)a, (__m512)v.p[0]);
  else
    _mm256_stream_si256((__m256i *)a, bf16_of(v));
#else
  store(a, v);
#endif
}

SIMD_INLINE void stream_fence() {
#if SIMD_AVX512
  _mm_sfence();
#endif
}

// Access all lanes, or the first `lanes` lanes if full is false.
template <bool full, class T> SIMD_INLINE F32 load_row(const T *a, int lanes) {
  return full ? load(a) : load_first(a, lanes);
}

template <bool full, class T> SIMD_INLINE void store_row(T *a, F32 v, int lanes) {
  if (full)
    store(a, v);
  else
    store_first(a, v, lanes);
}

template <bool value_> struct Bool { static constexpr bool value = value_; };

SIMD_INLINE float lane(F32 v, int i) {
  float t[kLanes];
  store(t, v);
  return t[i];
}

// sum_of returns the sum of the lanes, added in a fixed order, and max_of the largest value.
SIMD_INLINE float sum_of(F32 v) {
  float t[kLanes];
  store(t, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) t[i] += t[i + half];
  return t[0];
}

SIMD_INLINE float max_of(F32 v) {
  float t[kLanes];
  store(t, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
  return t[0];
}

} // namespace
} // namespace hetero
