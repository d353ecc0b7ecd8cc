// peak_avx512.cc: inner loops of the peak measurement.
#include <immintrin.h>

#include "peak.h"
#include "unroll.h"

namespace hetero {

namespace {

// Number of independent chains. It hides the latency of two FMA units (4 cycles each, and more on some CPUs).
constexpr int kChains = 16;

int64_t f32(int64_t turns, void *sink) {
  __m512 sum[kChains], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int i = 0; i < kChains; i++) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t t = 0; t < turns; t++) {
    HT_UNROLL(16)
    for (int i = 0; i < kChains; i++) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < kChains; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  _mm512_storeu_ps(sink, sum[0]);
  return turns * kChains * 16 * 2;
}

void read(const char *p, size_t n, void *sink) {
  __m512i sum[4] = {};
  for (size_t i = 0; i < n; i += 256) {
    HT_UNROLL(4)
    for (int l = 0; l < 4; l++) sum[l] = _mm512_xor_si512(sum[l], _mm512_load_si512(p + i + 64 * l));
  }
  _mm512_storeu_si512(sink, _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3])));
}

void copy(char *to, const char *from, size_t n) {
  for (size_t i = 0; i < n; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i), _mm512_load_si512(from + i));
  _mm_sfence();
}

void write(char *p, size_t n) {
  for (size_t i = 0; i < n; i += 64) _mm512_stream_si512(reinterpret_cast<__m512i *>(p + i), _mm512_set1_epi8(1));
  _mm_sfence();
}

} // namespace

PeakLoops avx512_peak_loops() { return {f32, nullptr, read, copy, write}; }

} // namespace hetero
