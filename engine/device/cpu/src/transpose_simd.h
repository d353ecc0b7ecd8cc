// transpose_simd.h: a transposition in registers, for files compiled with AVX-512.
#pragma once

#include <immintrin.h>

#include "unroll.h"

namespace hetero {
namespace {

// Transposes 16 vectors of 16 lanes of 32 bits.
inline __attribute__((always_inline)) void transpose_16x16(__m512i v[16]) {
  __m512i a[16], b[16];
  HT_UNROLL(8)
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  HT_UNROLL(4)
  for (int i = 0; i < 16; i += 4) {
    HT_UNROLL(2)
    for (int j = 0; j < 2; j++) { // each quarter of b[i + c] contains lane c of rows i … i+3
      b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
  }
  HT_UNROLL(4)
  for (int c = 0; c < 4; c++) {
    const __m512i low = _mm512_shuffle_i32x4(b[c], b[c + 4], 0x88), high = _mm512_shuffle_i32x4(b[c], b[c + 4], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0x88),
                  high2 = _mm512_shuffle_i32x4(b[c + 8], b[c + 12], 0xdd);
    v[c] = _mm512_shuffle_i32x4(low, low2, 0x88);
    v[c + 8] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    v[c + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
    v[c + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
}

} // namespace
} // namespace hetero
