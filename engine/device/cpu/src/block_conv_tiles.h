// block_conv_tiles.h: the register tiles of block_conv.h, for the element type that Lane describes. A source file for
// an instruction set defines Lane, then includes this file once:
//
//	Element                        float or uint16_t
//	Vector                         16 lanes of `group` elements
//	group                          number of adjacent elements in a lane: the inputs that one instruction multiplies
//	load(p), spread(p)             16 lanes from p; one lane from p, in all lanes
//	add_product(sum, a, b)         sum + a · b in every lane, in f32
//	store(p, sum)                  rounds 16 sums to 16 elements
//	pack(src, stride, n, dst)      BlockKernels.pack
//
// Everything has internal linkage, so that the linker never merges functions of two instruction sets.
#pragma once

#include <immintrin.h>

#include <utility>

#include "block_conv.h"
#include "unroll.h"

namespace hetero {

namespace {

using Element = Lane::Element;

template <int Rows, int Outs> void gather(const GatherTile &t) {
  __m512 sum[Rows][Outs];
  for (int o = 0; o < Outs; o++) {
    __m512 start = t.bias ? _mm512_loadu_ps(t.bias + o * kBlock) : _mm512_setzero_ps();
    for (int r = 0; r < Rows; r++) sum[r][o] = start;
  }
  auto *in = static_cast<const Element *>(t.in);
  auto *weight = static_cast<const Element *>(t.weight);
  for (int64_t block = 0; block < t.in_blocks; block++, in += t.in_block, weight += t.weight_in)
    for (int64_t k = 0; k < t.num_taps; k++) {
      const Element *x = in + t.taps[k].pixel * kBlock, *w = weight + t.taps[k].tap * kTile;
      for (int64_t i = 0; i < kBlock / Lane::group; i++) {
        Lane::Vector wv[Outs];
        for (int o = 0; o < Outs; o++) wv[o] = Lane::load(w + o * t.weight_out + i * Lane::group * kBlock);
        HT_UNROLL(12)
        for (int r = 0; r < Rows; r++) {
          Lane::Vector xv = Lane::spread(x + r * t.in_row + Lane::group * i);
          for (int o = 0; o < Outs; o++) sum[r][o] = Lane::add_product(sum[r][o], xv, wv[o]);
        }
      }
    }
  for (int r = 0; r < Rows; r++)
    for (int o = 0; o < Outs; o++)
      Lane::store(static_cast<Element *>(t.out) + r * t.out_row + o * t.out_block, sum[r][o]);
}

// Computes channels [first, first + 8) of the tile.
template <int Outs> void outer_half(const OuterTile &t, int64_t first) {
  constexpr int64_t vector = kBlock * Lane::group; // vector length, elements
  __m512 sum[8][Outs];
  float *out[2] = {t.out0, t.out1};
  for (int c = 0; c < 8; c++)
    for (int o = 0; o < Outs; o++)
      sum[c][o] = t.add ? _mm512_loadu_ps(out[o] + (first + c) * kBlock) : _mm512_setzero_ps();
  for (int64_t sample = 0; sample < t.samples; sample++)
    for (const Run *run = t.runs; run < t.runs + t.num_runs; run++) {
      int64_t a0 = sample * t.a_sample + run->a * t.vectors, b0 = sample * t.b_sample + run->b * t.vectors;
      int64_t length = run->pixels * t.vectors;
      const Element *a = static_cast<const Element *>(t.a) + a0 * vector + first * Lane::group;
      const Element *b[2] = {static_cast<const Element *>(t.b0) + b0 * vector,
                             Outs > 1 ? static_cast<const Element *>(t.b1) + b0 * vector : nullptr};
      for (int64_t k = 0; k < length; k++) {
        Lane::Vector bv[Outs];
        for (int o = 0; o < Outs; o++) bv[o] = Lane::load(b[o] + k * vector);
        HT_UNROLL(8)
        for (int c = 0; c < 8; c++) {
          Lane::Vector av = Lane::spread(a + k * vector + c * Lane::group);
          for (int o = 0; o < Outs; o++) sum[c][o] = Lane::add_product(sum[c][o], av, bv[o]);
        }
      }
    }
  for (int c = 0; c < 8; c++)
    for (int o = 0; o < Outs; o++) _mm512_storeu_ps(out[o] + (first + c) * kBlock, sum[c][o]);
}

void outer(const OuterTile &t) {
  for (int64_t first : {0, 8}) t.b1 ? outer_half<2>(t, first) : outer_half<1>(t, first);
}

template <int... R> void fill(BlockKernels &k, std::integer_sequence<int, R...>) {
  ((k.gather[R][0] = gather<R + 1, 1>, k.gather[R][1] = gather<R + 1, 2>), ...);
}

BlockKernels block_kernels() {
  BlockKernels k{};
  k.group = Lane::group;
  fill(k, std::make_integer_sequence<int, kMaxRows>());
  k.outer = outer;
  k.pack = Lane::pack;
  return k;
}

} // namespace

} // namespace hetero
