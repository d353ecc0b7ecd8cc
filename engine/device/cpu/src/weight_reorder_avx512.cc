// weight_reorder_avx512.cc: one block of weights at a time, in registers.
#include <immintrin.h>

#include "weight_reorder.h"

namespace hetero {

namespace {

// Converts f32 to bf16, which the low halves of the lanes then contain. Rounds to nearest even; a NaN stays a NaN.
__m512i round_to_bf16(__m512 v) {
  __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
}

__m512i pair_up(__m512i low, __m512i high) { return _mm512_or_si512(low, _mm512_slli_epi32(high, 16)); }

void pairs(const float *src, void *dst, int64_t w) {
  auto *d = static_cast<char *>(dst);
  for (int64_t i = 0; i < 16; i += 2)
    for (int64_t o = 0; o < w; o += 16, d += 64)
      _mm512_storeu_si512(d, pair_up(round_to_bf16(_mm512_loadu_ps(src + i * w + o)),
                                     round_to_bf16(_mm512_loadu_ps(src + (i + 1) * w + o))));
}

// Transposes 16 rows of 8 lanes. On entry, v[r] contains 8 lanes of row r and 8 lanes of row r + 8. On return, v[c]
// contains lane c of all 16 rows.
void transpose_16x8(__m512i v[8]) {
  __m512i a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; j++) {
      b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
  // In each half, b[c] holds lane c, then lane c+4, of rows 0-3; b[c+4] holds the same lanes of rows 4-7.
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int c = 0; c < 4; c++) {
    v[c] = _mm512_permutex2var_epi64(b[c], low, b[c + 4]);
    v[c + 4] = _mm512_permutex2var_epi64(b[c], high, b[c + 4]);
  }
}

void transposed(const float *src, void *dst, int64_t) {
  for (int64_t half = 0; half < 2; half++) {
    __m512i v[8];
    for (int64_t r = 0; r < 8; r++) {
      __m256i upper = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src + r * 16 + half * 8));
      __m256i lower = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src + (r + 8) * 16 + half * 8));
      v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(upper), lower, 1);
    }
    transpose_16x8(v);
    for (int64_t c = 0; c < 8; c++) _mm512_storeu_si512(static_cast<float *>(dst) + (half * 8 + c) * 16, v[c]);
  }
}

// Returns the 16 outputs of a row as 8 pairs of bf16, which are 8 lanes.
__m256i row_of_pairs(const float *src) { return _mm512_cvtepi32_epi16(round_to_bf16(_mm512_loadu_ps(src))); }

void transposed_pairs(const float *src, void *dst, int64_t) {
  __m512i v[8];
  for (int64_t r = 0; r < 8; r++)
    v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(row_of_pairs(src + r * 16)), row_of_pairs(src + (r + 8) * 16), 1);
  transpose_16x8(v);
  for (int64_t c = 0; c < 8; c++) _mm512_storeu_si512(static_cast<char *>(dst) + c * 64, v[c]);
}

} // namespace

BlockReorder avx512_block_reorder() { return {pairs, transposed, transposed_pairs}; }

} // namespace hetero
