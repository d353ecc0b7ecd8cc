// block_conv_avx512bf16.cc: register tiles of block_conv.h for bf16, with f32 sums.
#include <immintrin.h>

#include <cstring>

#include "block_conv.h"
#include "spread_bf16.h"

namespace hetero {

namespace {

struct Lane {
  using Element = uint16_t;
  using Vector = __m512bh;
  static constexpr int64_t group = 2; // number of adjacent elements in a lane

  static Vector load(const uint16_t *p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
  static Vector spread(const uint16_t *p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return SPREAD_BF16(pair);
  }
  static __m512 add_product(__m512 sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, a, b); }
  static void store(uint16_t *p, __m512 sum) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sum)));
  }

  // Interleaves two samples: pair c consists of channel c of both samples.
  static void pack(const void *src, int64_t stride, int64_t n, void *dst) {
    auto *s = static_cast<const uint16_t *>(src);
    auto *d = static_cast<uint16_t *>(dst);
    for (int64_t i = 0; i < n; i += 2, d += 2 * kBlock) {
      __m256i even = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(s + i * stride));
      __m256i odd = i + 1 < n ? _mm256_loadu_si256(reinterpret_cast<const __m256i *>(s + (i + 1) * stride))
                              : _mm256_setzero_si256();
      __m512i low = _mm512_cvtepu16_epi32(even), high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
      _mm512_storeu_si512(d, _mm512_or_si512(low, high));
    }
  }
};

} // namespace

} // namespace hetero

#include "block_conv_tiles.h"

namespace hetero {

BlockKernels avx512bf16_block_kernels() { return block_kernels(); }

} // namespace hetero
