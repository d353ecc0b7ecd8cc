// gemm_bf16_arm64.cc: the tile of bf16, with bfmmla.
#include <arm_neon.h>

#include "gemm_arm64.h"
#include "unroll.h"

namespace hetero {

// s[i][j] contains the sums of rows 2i and 2i+1 and of columns 2j and 2j+1, row by row.
void tile_bf16(int64_t k, const void *a_, const void *b_, float *c, int64_t c_row, Start start) {
  const auto *a = static_cast<const bfloat16_t *>(a_), *b = static_cast<const bfloat16_t *>(b_);
  float32x4_t s[4][6];
  HT_UNROLL(4)
  for (int i = 0; i < 4; i++) {
    HT_UNROLL(6)
    for (int j = 0; j < 6; j++) s[i][j] = vdupq_n_f32(0);
  }
  for (; k > 0; k -= 4, a += 4 * kTileRows, b += 4 * kTileColumns) {
    const bfloat16x8_t a0 = vld1q_bf16(a), a1 = vld1q_bf16(a + 8), a2 = vld1q_bf16(a + 16), a3 = vld1q_bf16(a + 24);
    HT_UNROLL(6)
    for (int j = 0; j < 6; j++) {
      const bfloat16x8_t y = vld1q_bf16(b + 8 * j);
      s[0][j] = vbfmmlaq_f32(s[0][j], a0, y);
      s[1][j] = vbfmmlaq_f32(s[1][j], a1, y);
      s[2][j] = vbfmmlaq_f32(s[2][j], a2, y);
      s[3][j] = vbfmmlaq_f32(s[3][j], a3, y);
    }
  }
  HT_UNROLL(4)
  for (int i = 0; i < 4; i++) {
    HT_UNROLL(3)
    for (int j = 0; j < 3; j++) {
      const float64x2_t left = vreinterpretq_f64_f32(s[i][2 * j]), right = vreinterpretq_f64_f32(s[i][2 * j + 1]);
      float32x4_t even = vreinterpretq_f32_f64(vzip1q_f64(left, right));
      float32x4_t odd = vreinterpretq_f32_f64(vzip2q_f64(left, right));
      float *to = c + 2 * i * c_row + 4 * j;
      if (start != Start::zero) {
        even = vaddq_f32(vld1q_f32(to), even);
        odd = vaddq_f32(vld1q_f32(to + c_row), odd);
      }
      vst1q_f32(to, even);
      vst1q_f32(to + c_row, odd);
    }
  }
}

} // namespace hetero
