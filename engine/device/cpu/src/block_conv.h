// block_conv.h: convolutions of small images on AVX-512, in blocks of 16 channels.
//
// oneDNN's convolutions are optimised for images with many pixels. On those of a network's late layers (4x4, 2x2, 1x1)
// they reach a fraction of the machine's rate, and they multiply taps that read only padding. Here the samples of the
// batch are the long dimension, and each output pixel has a list of its taps:
//
//   forward, diff_src   out(n, o) = sum over taps and i of in(n, pixel of the tap, i) · w(tap, i, o), one output pixel at a time
//   diff_weights        dw(tap, c, o) = sum over (src pixel, dst pixel) of the tap and n of src(n, c) · diff_dst(n, o)
//
// Images have layout nChw16c. The last two dimensions of weights are 16 inputs x 16 outputs (bf16: adjacent pairs of
// inputs). Channels are multiples of 16, groups is 1. One thread sums each output element in a fixed order.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel.h"

namespace hetero {

constexpr int64_t kBlock = 16;             // channels of a block
constexpr int64_t kTile = kBlock * kBlock; // elements of a weight block
constexpr int kMaxRows = 12;               // samples of a register tile: 12 x 2 blocks of sums fill 24 registers

// A tap that an output pixel reads.
struct Tap {
  int32_t tap, pixel; // index into the kernel's taps, into the input's pixels
};

// rows x (blocks of outputs) sums of forward or diff_src. Strides are in elements.
struct GatherTile {
  const void *in; // first row, first block, first pixel
  int64_t in_row, in_block;
  const void *weight; // first output block
  int64_t weight_out, weight_in;
  const Tap *taps;
  int64_t num_taps, in_blocks;
  const float *bias; // of the first output block, or nullptr
  void *out;         // first row, first output block, its pixel
  int64_t out_row, out_block;
};
using Gather = void (*)(const GatherTile &);

// Weight gradient of one tap for a block of 16 input channels and one or two blocks of output channels. a, b0 and b1
// contain vectors of kBlock channels: `vectors` per pixel, in the order of pixels; samples are `a_sample` and
// `b_sample` vectors apart. A run is a sequence of pixels that are contiguous in both.
struct Run {
  int32_t a, b, pixels;
};
struct OuterTile {
  const void *a, *b0, *b1; // b1 is nullptr with a single output block
  int64_t samples, a_sample, b_sample, vectors;
  const Run *runs;
  int64_t num_runs;
  float *out0, *out1; // (16 channels, 16 outputs) each
  bool add;           // to the present values
};

struct BlockKernels {
  int64_t group; // samples in a packed vector: 1 for f32, 2 for bf16
  Gather gather[kMaxRows][2];
  void (*outer)(const OuterTile &);
  // Packs one block of channels of one pixel: samples [0, n) at src + i*stride, to ceil(n/group) vectors of kBlock
  // groups. Zeros fill the last vector.
  void (*pack)(const void *src, int64_t stride, int64_t n, void *dst);
};

BlockKernels avx512_block_kernels();     // f32
BlockKernels avx512bf16_block_kernels(); // bf16

// Returns the kernel for a request of HT_CONV2D, _DIFF_SRC or _DIFF_WEIGHTS, or nullptr if oneDNN is faster or an
// operand is bound to another layout. The caller has checked the shapes.
std::unique_ptr<Kernel> make_block_conv(const Request &r);

} // namespace hetero
