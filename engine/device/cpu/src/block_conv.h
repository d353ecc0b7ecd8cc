// block_conv.h: convolutions of small images on AVX-512, in blocks of 16 channels. On a CPU with AMX, images have the
// layout nhwc, and the kernels of tile_conv.h are used instead.
//
// oneDNN's convolutions are optimised for images with many pixels. On the small images of a network's late layers (4x4,
// 2x2, 1x1), they reach only a fraction of the machine's FLOP rate. They also compute the products of taps that read
// only padding; a tap is one element of the convolution kernel's (KH, KW).
//
// In the kernels of this file, the samples of the batch are the long dimension. Each output pixel has a list of its
// taps:
//
//     forward, diff_src   out(n, o) = sum over taps of the output pixel and i of in(n, tap's pixel, i) · w(tap, i, o)
//     diff_weights        dw(tap, c, o) = sum over pixels of the tap and n of src(n, c) · diff_dst(n, o)
//
// n is a sample. i and c are input channels, and o is an output channel. A pixel of a tap is a pair of pixels of src
// and dst.
//
// Images have layout nChw16c. The last two dimensions of weights are 16 inputs x 16 outputs (bf16: adjacent pairs of
// inputs). The number of channels is a multiple of 16, and groups is 1. One thread sums each output element in a fixed
// order.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel.h"

namespace hetero {

constexpr int64_t kBlock = 16;             // channels of a block
constexpr int64_t kTile = kBlock * kBlock; // elements of a weight block
constexpr int kMaxRows = 12;               // samples of a register tile: 12 x 2 blocks of sums fill 24 registers

// A tap of an output pixel.
struct Tap {
  int32_t tap, pixel; // index of the tap in the convolution kernel, and of the input pixel
};

// A tile of forward or diff_src: the sums of some rows for one or two blocks of outputs. Strides are in elements.
struct GatherTile {
  const void *in; // address of the first row, first block, first pixel
  int64_t in_row, in_block;
  const void *weight; // address of the weights of the first output block
  int64_t weight_out, weight_in;
  const Tap *taps;
  int64_t num_taps, in_blocks;
  const float *bias; // bias of the first output block, or nullptr
  void *out;         // address of the first row and first output block, at the tile's pixel
  int64_t out_row, out_block;
};
using Gather = void (*)(const GatherTile &);

// The weight gradient of one tap, for a block of 16 input channels and one or two blocks of output channels. a, b0 and
// b1 point to vectors of kBlock channels, `vectors` for each pixel, in the order of pixels. From one sample to the
// next, there are a_sample or b_sample vectors. A run is a sequence of pixels that are contiguous in both images.
struct Run {
  int32_t a, b, pixels;
};
struct OuterTile {
  const void *a, *b0, *b1; // b1 is nullptr if there is only one output block
  int64_t samples, a_sample, b_sample, vectors;
  const Run *runs;
  int64_t num_runs;
  float *out0, *out1; // the two results, each (16 channels, 16 outputs)
  bool add;           // whether to add to the current values
};

struct BlockKernels {
  int64_t group; // number of samples in a packed vector: 1 for f32, 2 for bf16
  Gather gather[kMaxRows][2];
  void (*outer)(const OuterTile &);
  // Packs one block of channels of one pixel. Reads samples [0, n) at src + i*stride, and writes ceil(n/group) vectors
  // of kBlock lanes. If the last vector lacks samples, zeros replace them.
  void (*pack)(const void *src, int64_t stride, int64_t n, void *dst);
};

BlockKernels avx512_block_kernels();     // kernels for f32
BlockKernels avx512bf16_block_kernels(); // kernels for bf16

// Returns the kernel for a request of HT_CONV2D, _DIFF_SRC or _DIFF_WEIGHTS. Returns nullptr if oneDNN is faster, or if
// an operand is bound to another layout. The caller must check the shapes first.
std::unique_ptr<Kernel> make_block_conv(const Request &r);

} // namespace hetero
