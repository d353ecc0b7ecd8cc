// channels.h: what is done with channels around a convolution or a product: more of them or fewer, in another type, with a bias; and a bias's
// gradient.
#pragma once

#include <cstdint>

namespace hetero {

// A tensor in memory, as three dimensions, the last fastest. Images and weights in nhwc: (N, H·W, C), channels last; plain: (N, C, H·W),
// channels in the middle.
struct Block {
  int32_t dtype; // ht_dtype: f32, bf16 or f16
  int64_t a, b, c;
  bool channels_last;

  int64_t channels() const { return channels_last ? c : b; }
};

// dst is src where both have an element, else 0; plus bias, one number a channel, unless that is nullptr.
void refit(const Block &src, const void *from, const Block &dst, void *to, const float *bias, void *queue);

// The same with n numbers in a row, whatever they are: to another type.
void cast(int64_t n, int32_t src_dtype, const void *from, int32_t dst_dtype, void *to, void *queue);

// The sum of each channel, in f32, the same bits every time. partial: so many bytes, a multiple of 16.
int64_t channel_sums_workspace(const Block &src);
void channel_sums(const Block &src, const void *from, float *sums, void *partial, void *queue);

} // namespace hetero
