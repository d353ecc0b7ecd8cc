// peak_bf16_arm64.cc: inner loop of the bf16 peak measurement.
#include <arm_neon.h>

#include "peak.h"
#include "unroll.h"

namespace hetero {

int64_t bfmmla_peak(int64_t turns, void *sink) {
  constexpr int chains = 24; // hides a latency of 6 cycles on four units
  float32x4_t sum[chains];
  for (int i = 0; i < chains; i++) sum[i] = vdupq_n_f32(static_cast<float>(i));
  const bfloat16x8_t a = vreinterpretq_bf16_u16(vdupq_n_u16(0x3a83)), b = a; // 0.001
  for (int64_t t = 0; t < turns; t++) {
    HT_UNROLL(24)
    for (int i = 0; i < chains; i++) sum[i] = vbfmmlaq_f32(sum[i], a, b);
  }
  for (int i = 1; i < chains; i++) sum[0] = vaddq_f32(sum[0], sum[i]);
  vst1q_f32(static_cast<float *>(sink), sum[0]);
  return turns * chains * 16 * 2;
}

} // namespace hetero
