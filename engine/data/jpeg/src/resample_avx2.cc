// resample_avx2.cc: the horizontal loop processes four rows at a time, the vertical loop 16 columns at a time.
#include "resample.h"

#include <immintrin.h>

#include <cstring>

namespace hetero {
namespace {

// Loads a pixel and the byte after it, which the caller ignores.
inline int load_pixel(const uint8_t *p) {
  int v;
  std::memcpy(&v, p, 4);
  return v;
}

// Returns the bytes of the pixels at a and b as 32-bit lanes: a in the lower half, b in the upper half.
inline __m256i load_two(const uint8_t *a, const uint8_t *b) {
  return _mm256_cvtepu8_epi32(_mm_insert_epi32(_mm_cvtsi32_si128(load_pixel(a)), load_pixel(b), 1));
}

// Converts the 8 sums in a and the 8 sums in b to bytes. The low 8 bytes of the result's lower half are the sums of the
// lower halves of a and b. The low 8 bytes of its upper half are the sums of the upper halves of a and b.
inline __m256i to_bytes(__m256i a, __m256i b) {
  const __m256i words = _mm256_packus_epi32(_mm256_srai_epi32(a, kWeightBits), _mm256_srai_epi32(b, kWeightBits));
  return _mm256_packus_epi16(words, words);
}

// Resamples four rows. Rows 0 and 1 of the source are in register a, and rows 2 and 3 in register b. This function
// reads one byte beyond the rows.
void four_rows(uint8_t *dst, const uint8_t *src, size_t row_bytes, const hetero_taps &x) {
  const size_t out = 3 * size_t(x.count);
  for (int32_t k = 0; k < x.count; k++) {
    const uint8_t *p = src + 3 * int64_t(x.start[k]);
    const int32_t *w = x.weight + int64_t(k) * x.width;
    __m256i a = _mm256_set1_epi32(kHalf), b = a;
    for (int32_t i = 0; i < x.num[k]; i++, p += 3) {
      const __m256i weight = _mm256_set1_epi32(w[i]);
      a = _mm256_add_epi32(a, _mm256_mullo_epi32(weight, load_two(p, p + row_bytes)));
      b = _mm256_add_epi32(b, _mm256_mullo_epi32(weight, load_two(p + 2 * row_bytes, p + 3 * row_bytes)));
    }
    const __m256i bytes = to_bytes(a, b);
    const __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    const int pixels[4] = {_mm_cvtsi128_si32(low), _mm_cvtsi128_si32(high), _mm_extract_epi32(low, 1),
                           _mm_extract_epi32(high, 1)};
    for (int row = 0; row < 4; row++) std::memcpy(dst + row * out + 3 * size_t(k), &pixels[row], 3);
  }
}

void horizontal(uint8_t *dst, const uint8_t *src, size_t row_bytes, int32_t num_rows, const uint8_t *end,
                const hetero_taps &x) {
  int32_t row = 0;
  for (; row + 4 <= num_rows && end - src > ptrdiff_t(size_t(row + 4) * row_bytes); row += 4)
    four_rows(dst + 3 * int64_t(row) * x.count, src + size_t(row) * row_bytes, row_bytes, x);
  if (row < num_rows)
    resample_generic.horizontal(dst + 3 * int64_t(row) * x.count, src + size_t(row) * row_bytes, row_bytes,
                                num_rows - row, end, x);
}

void vertical(uint8_t *dst, const uint8_t *rows, int32_t bytes, int32_t num, const int32_t *weight) {
  int32_t c = 0;
  for (; c + 16 <= bytes; c += 16) {
    __m256i a = _mm256_set1_epi32(kHalf), b = a;
    const uint8_t *p = rows + c;
    for (int32_t i = 0; i < num; i++, p += bytes) {
      const __m256i w = _mm256_set1_epi32(weight[i]);
      const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
      a = _mm256_add_epi32(a, _mm256_mullo_epi32(w, _mm256_cvtepu8_epi32(v)));
      b = _mm256_add_epi32(b, _mm256_mullo_epi32(w, _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))));
    }
    // The lower half of packed contains a low, b low; its upper half contains a high, b high. Reorder to a low, a high,
    // b low, b high.
    const __m256i packed = to_bytes(a, b);
    const __m128i ordered = _mm_unpacklo_epi32(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(dst + c), ordered);
  }
  for (; c < bytes; c++) {
    int32_t sum = kHalf;
    for (int32_t i = 0; i < num; i++) sum += weight[i] * rows[int64_t(i) * bytes + c];
    sum >>= kWeightBits;
    dst[c] = uint8_t(sum < 255 ? sum : 255);
  }
}

} // namespace

const ResampleLoops resample_avx2 = {horizontal, vertical};

} // namespace hetero
