// weight_reorder.h: reorders parameters to the layouts of their working copies, in each training step.
//
// Parameters have the layout of oneDNN's weight gradients: blocks of (16 inputs, W outputs) in f32. W is 16 for
// convolutions, and 16 to 64 for linear layers. The working copies have other blocks:
//
//   - forward: bf16 blocks with adjacent pairs of inputs
//   - diff_src: blocks with inputs and outputs exchanged, in f32, or in bf16 with adjacent pairs of outputs
//
// These kernels exist because oneDNN's reorders reach only a fifth of the memory's speed.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel.h"

namespace hetero {

struct BlockReorder {
  // Reorder one block. src is (16, W) f32.
  void (*pairs)(const float *src, void *dst, int64_t w);      // dst (8, W, 2) bf16: adjacent pairs of inputs
  void (*transposed)(const float *src, void *dst, int64_t w); // dst (16, 16) f32, W = 16
  void (*transposed_pairs)(const float *src, void *dst,
                           int64_t w); // dst (8, 16, 2) bf16, W = 16: adjacent pairs of outputs
};

BlockReorder avx512_block_reorder();

// Returns the kernel for a reorder, or nullptr if these kernels do not support it. Specs and bytes must be final.
std::unique_ptr<Kernel> make_weight_reorder(const ht_spec &from, const ht_spec &to);

} // namespace hetero
