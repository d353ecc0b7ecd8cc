// peak_avx512bf16.cc: inner loop of the bf16 peak measurement.
#include <immintrin.h>

#include "peak.h"
#include "unroll.h"

namespace hetero {

int64_t avx512_bf16_peak(int64_t turns, void *sink) {
  constexpr int chains = 16;
  __m512 sum[chains];
  for (int i = 0; i < chains; i++) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-3f), _mm512_set1_ps(1e-3f)), b = a;
  for (int64_t t = 0; t < turns; t++) {
    HT_UNROLL(16)
    for (int i = 0; i < chains; i++) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
  for (int i = 1; i < chains; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  _mm512_storeu_ps(sink, sum[0]);
  return turns * chains * 32 * 2;
}

} // namespace hetero
