// block_conv_avx512.cc: register tiles of block_conv.h for f32.
#include <immintrin.h>

#include "block_conv.h"

namespace hetero {

namespace {

struct Lane {
  using Element = float;
  using Vector = __m512;
  static constexpr int64_t group = 1;

  static Vector load(const float *p) { return _mm512_loadu_ps(p); }
  static Vector spread(const float *p) { return _mm512_set1_ps(*p); }
  static __m512 add_product(__m512 sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  static void store(float *p, __m512 sum) { _mm512_storeu_ps(p, sum); }

  static void pack(const void *src, int64_t stride, int64_t n, void *dst) {
    for (int64_t i = 0; i < n; i++)
      _mm512_storeu_ps(static_cast<float *>(dst) + i * kBlock,
                       _mm512_loadu_ps(static_cast<const float *>(src) + i * stride));
  }
};

} // namespace

} // namespace hetero

#include "block_conv_tiles.h"

namespace hetero {

BlockKernels avx512_block_kernels() { return block_kernels(); }

} // namespace hetero
