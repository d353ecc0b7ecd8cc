// transformer_arm64.cc: the loops of transformers on arm64. The compiler turns the loops of transformer_generic.cc into
// NEON instructions. This file replaces the products, which use fused multiply-adds.
#include <arm_neon.h>

#include <algorithm>

#include "bf16.h"
#include "transformer_table.h"
#include "unroll.h"

namespace hetero {

namespace {

// Rows of a tile. 4 x 16 sums fill 16 registers, which is enough to hide the latency of four FMA units.
constexpr int kRows = 4;

// Computes rows [row, row + rows) and 16 columns from `column` on.
template <int rows> void tile(const SmallProduct &p, int row, int column) {
  float *out = p.out + row * p.out_row + column;
  float32x4_t sum[rows][4];
  HT_UNROLL(4)
  for (int r = 0; r < rows; r++) {
    HT_UNROLL(4)
    for (int j = 0; j < 4; j++) sum[r][j] = p.add ? vld1q_f32(out + r * p.out_row + 4 * j) : vdupq_n_f32(0);
  }
  const float *x = p.x + column, *c = p.coefficients + row * p.row;
  for (int64_t i = 0; i < p.k; i++, x += p.x_row, c += p.step) {
    const float32x4_t x0 = vld1q_f32(x), x1 = vld1q_f32(x + 4), x2 = vld1q_f32(x + 8), x3 = vld1q_f32(x + 12);
    HT_UNROLL(4)
    for (int r = 0; r < rows; r++) {
      const float32x4_t f = vld1q_dup_f32(c + r * p.row);
      sum[r][0] = vfmaq_f32(sum[r][0], f, x0);
      sum[r][1] = vfmaq_f32(sum[r][1], f, x1);
      sum[r][2] = vfmaq_f32(sum[r][2], f, x2);
      sum[r][3] = vfmaq_f32(sum[r][3], f, x3);
    }
  }
  HT_UNROLL(4)
  for (int r = 0; r < rows; r++) {
    HT_UNROLL(4)
    for (int j = 0; j < 4; j++) vst1q_f32(out + r * p.out_row + 4 * j, sum[r][j]);
  }
}

void product(const SmallProduct &p) {
  for (int row = 0; row < p.rows; row += kRows)
    for (int column = 0; column < 32; column += 16) switch (std::min(p.rows - row, kRows)) {
      case 1: tile<1>(p, row, column); break;
      case 2: tile<2>(p, row, column); break;
      case 3: tile<3>(p, row, column); break;
      default: tile<4>(p, row, column);
      }
}

template <class T> float chain(int64_t n, const void *a_, const void *b_) {
  const T *a = static_cast<const T *>(a_), *b = static_cast<const T *>(b_);
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum = __builtin_fmaf(to_f32(a[i]), to_f32(b[i]), sum);
  return sum;
}

} // namespace

const TransformerTable &transformer() {
  static const TransformerTable table = [] {
    TransformerTable t = transformer_generic;
    t.product = product;
    t.chain[0] = chain<float>;
    t.chain[1] = chain<Bf16>;
    return t;
  }();
  return table;
}

} // namespace hetero
