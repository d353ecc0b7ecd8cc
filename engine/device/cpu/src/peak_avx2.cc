// peak_avx2.cc: inner loops of the peak measurement.
#include <immintrin.h>

#include "peak.h"
#include "unroll.h"

namespace hetero {

namespace {

// Number of independent chains. It is large enough to hide the latency of two FMA units (5 cycles each), and small
// enough for 16 registers.
constexpr int kChains = 12;

int64_t f32(int64_t turns, void *sink) {
  __m256 sum[kChains], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int i = 0; i < kChains; i++) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t t = 0; t < turns; t++) {
    HT_UNROLL(12)
    for (int i = 0; i < kChains; i++) sum[i] = _mm256_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < kChains; i++) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  _mm256_storeu_ps(static_cast<float *>(sink), sum[0]);
  return turns * kChains * 8 * 2;
}

void read(const char *p, size_t n, void *sink) {
  __m256i sum[4] = {};
  for (size_t i = 0; i < n; i += 128) {
    HT_UNROLL(4)
    for (int l = 0; l < 4; l++)
      sum[l] = _mm256_xor_si256(sum[l], _mm256_load_si256(reinterpret_cast<const __m256i *>(p + i + 32 * l)));
  }
  _mm256_storeu_si256(static_cast<__m256i *>(sink),
                      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3])));
}

void copy(char *to, const char *from, size_t n) {
  for (size_t i = 0; i < n; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i *>(to + i),
                        _mm256_load_si256(reinterpret_cast<const __m256i *>(from + i)));
  _mm_sfence();
}

void write(char *p, size_t n) {
  for (size_t i = 0; i < n; i += 32) _mm256_stream_si256(reinterpret_cast<__m256i *>(p + i), _mm256_set1_epi8(1));
  _mm_sfence();
}

} // namespace

PeakLoops avx2_peak_loops() { return {f32, nullptr, read, copy, write}; }

} // namespace hetero
