// channels.h: kernels that prepare the operands of a convolution or a matrix product, and finish its result. They
// change the number of channels or the element type, add a bias, and compute the gradient of a bias.
#pragma once

#include <cstdint>

namespace hetero {

// A tensor in memory as an array of three dimensions (a, b, c), the last one fastest:
//
//   - images and weights in nhwc: (N, H·W, C), channels last
//   - plain images and weights: (N, C, H·W), channels in the middle
struct Block {
  int32_t dtype; // ht_dtype: f32, bf16 or f16
  int64_t a, b, c;
  bool channels_last;

  int64_t channels() const { return channels_last ? c : b; }
};

// Copies src to dst with another number of channels or another type: dst = src where both have an element, otherwise
// dst = 0. Adds bias, with one value per channel, unless it is nullptr.
void refit(const Block &src, const void *from, const Block &dst, void *to, const float *bias, void *queue);

// Converts n contiguous numbers to another type.
void cast(int64_t n, int32_t src_dtype, const void *from, int32_t dst_dtype, void *to, void *queue);

// Computes the f32 sum of each channel; repeated calls return the same bits. partial is workspace of
// channel_sums_workspace(src) bytes, at a multiple of 16.
int64_t channel_sums_workspace(const Block &src);
void channel_sums(const Block &src, const void *from, float *sums, void *partial, void *queue);

} // namespace hetero
