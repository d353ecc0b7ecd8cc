// channels.h: work before and after a convolution or a product. It changes the number of channels or their type, adds a
// bias, and computes the gradient of the bias.
#pragma once

#include <cstdint>

namespace hetero {

// A tensor in memory as three dimensions, the last fastest. Images and weights in nhwc: (N, H·W, C), channels last;
// plain: (N, C, H·W), channels in the middle.
struct Block {
  int32_t dtype; // ht_dtype: f32, bf16 or f16
  int64_t a, b, c;
  bool channels_last;

  int64_t channels() const { return channels_last ? c : b; }
};

// dst = src where both have an element, otherwise dst = 0. Unless bias is nullptr, the bias (one value per channel) is
// added.
void refit(const Block &src, const void *from, const Block &dst, void *to, const float *bias, void *queue);

// Converts n contiguous numbers to another type.
void cast(int64_t n, int32_t src_dtype, const void *from, int32_t dst_dtype, void *to, void *queue);

// Computes the sum of each channel, in f32; repeated sums are bit-equal. partial: memory of channel_sums_workspace
// bytes, at a multiple of 16.
int64_t channel_sums_workspace(const Block &src);
void channel_sums(const Block &src, const void *from, float *sums, void *partial, void *queue);

} // namespace hetero
