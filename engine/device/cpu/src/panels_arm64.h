// panels_arm64.h: writes the panels of gemm_arm64.h. The index k of a panel is called a product. Type parameters:
//
//   - P: element type of a panel, float or Bf16
//   - S: element type of the operand
//   - W: width of the panel
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "bf16.h"
#include "gemm_arm64.h"

namespace hetero {
namespace {

// Number of adjacent products of a column in a panel.
template <class P> constexpr int64_t kGroup = std::is_same_v<P, float> ? 1 : 4;

template <class P, int W> constexpr int64_t panel_index(int64_t k, int64_t i) {
  return (k / kGroup<P> * W + i) * kGroup<P> + k % kGroup<P>;
}

// Sets products [k, end) of a panel to zero.
template <int W, class P> void clear_products(P *panel, int64_t k, int64_t end) {
  for (; k < end; k++)
    for (int i = 0; i < W; i++) put(panel + panel_index<P, W>(k, i), 0.0f);
}

inline void convert(const float *from, float *to, int n) { std::copy_n(from, n, to); }
inline void convert(const Bf16 *from, float *to, int n) {
  for (int i = 0; i < n; i += 4)
    vst1q_f32(to + i, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t *>(from + i)), 16)));
}
inline void convert(const float *from, uint16_t *to, int n) {
  for (int i = 0; i < n; i++) to[i] = f32_to_bf16(from[i]);
}
inline void convert(const Bf16 *from, uint16_t *to, int n) { std::memcpy(to, from, size_t(n) * 2); }

// Writes a panel, one product after another. row(k, buffer) returns the W elements of product k, in place or in buffer.
// It is called for k = 0, 1 … depth-1.
template <int W, class P, class S, class Row> void pack_rows(P *panel, int64_t depth, Row row) {
  S buffer[W];
  if constexpr (std::is_same_v<P, float>) {
    for (int64_t k = 0; k < depth; k++) convert(row(k, buffer), panel + k * W, W);
  } else {
    for (int64_t k = 0; k < depth; k += 4) {
      uint16_t x[4][W] = {};
      for (int64_t j = 0; j < std::min<int64_t>(4, depth - k); j++) convert(row(k + j, buffer), x[j], W);
      auto *to = reinterpret_cast<uint16_t *>(panel + k * W);
      for (int i = 0; i < W; i += 4)
        vst4_u16(to + 4 * i, {{vld1_u16(x[0] + i), vld1_u16(x[1] + i), vld1_u16(x[2] + i), vld1_u16(x[3] + i)}});
    }
  }
}

// Writes products [at, at + count) of a panel. The products of column i are adjacent, and start at from + i*stride, for
// i < valid. All other columns become zero.
template <int W, class P, class S>
void pack_columns(P *panel, int64_t at, int64_t count, int64_t valid, const S *from, int64_t stride) {
  int64_t k = 0;
  if constexpr (std::is_same_v<P, float> && std::is_same_v<S, float>) {
    for (; valid == W && k + 4 <= count; k += 4)
      for (int i = 0; i < W; i += 4) {
        const float *x = from + i * stride + k;
        float *to = panel + (at + k) * W + i;
        const float32x4x2_t ab = vtrnq_f32(vld1q_f32(x), vld1q_f32(x + stride));
        const float32x4x2_t cd = vtrnq_f32(vld1q_f32(x + 2 * stride), vld1q_f32(x + 3 * stride));
        vst1q_f32(to, vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0])));
        vst1q_f32(to + W, vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1])));
        vst1q_f32(to + 2 * W, vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0])));
        vst1q_f32(to + 3 * W, vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1])));
      }
  }
  if constexpr (std::is_same_v<P, Bf16> && std::is_same_v<S, Bf16>) {
    for (; at % 4 == 0 && valid == W && k + 4 <= count; k += 4)
      for (int i = 0; i < W; i++) std::memcpy(panel + (at + k) * W + 4 * i, from + i * stride + k, 8);
  }
  for (; k < count; k++)
    for (int64_t i = 0; i < W; i++)
      put(panel + panel_index<P, W>(at + k, i), i < valid ? to_f32(from[i * stride + k]) : 0.0f);
}

// Returns the number of products in a panel for `depth` products, including the zeros of the last group.
template <class P> int64_t packed(int64_t depth) { return (depth + kGroup<P> - 1) / kGroup<P> * kGroup<P>; }

} // namespace
} // namespace hetero
