// weight_reorder.h: from the layout of parameters to those of their working copies, each step of training.
//
// Parameters lie as oneDNN's weight gradients do: blocks of (16 inputs, W outputs) in f32, W being 16 for convolutions and 16
// to 64 for linear layers. The forward pass wants bf16 blocks with pairs of inputs side by side, diff_src blocks with inputs
// and outputs exchanged, plain or in pairs. oneDNN's own reorders do that at a fifth of the memory's speed.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel.h"

namespace hetero {

struct BlockReorder {
  // One block: src (16, W) f32.
  void (*pairs)(const float *src, void *dst, int64_t w);      // dst (8, W, 2) bf16: two inputs side by side
  void (*transposed)(const float *src, void *dst, int64_t w); // dst (16, 16) f32, W = 16
  void (*transposed_pairs)(const float *src, void *dst,
                           int64_t w); // dst (8, 16, 2) bf16, W = 16: two outputs side by side
};

BlockReorder avx512_block_reorder();

// The kernel for a reorder, nullptr where it is none of these. Specs and bytes are final.
std::unique_ptr<Kernel> make_weight_reorder(const ht_spec &from, const ht_spec &to);

} // namespace hetero
