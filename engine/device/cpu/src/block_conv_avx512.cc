// block_conv_avx512.cc: register tiles of block_conv.h for f32.
#include <immintrin.h>

#include <utility>

#include "block_conv.h"

namespace hetero {

namespace {

template <int Rows, int Outs> void gather(const GatherTile &t) {
  __m512 sum[Rows][Outs];
  for (int o = 0; o < Outs; o++) {
    __m512 start = t.bias ? _mm512_loadu_ps(t.bias + o * kBlock) : _mm512_setzero_ps();
    for (int r = 0; r < Rows; r++) sum[r][o] = start;
  }
  auto *in = static_cast<const float *>(t.in);
  auto *weight = static_cast<const float *>(t.weight);
  for (int64_t block = 0; block < t.in_blocks; block++, in += t.in_block, weight += t.weight_in)
    for (int64_t k = 0; k < t.num_taps; k++) {
      const float *x = in + t.taps[k].pixel * kBlock, *w = weight + t.taps[k].tap * kTile;
      for (int64_t i = 0; i < kBlock; i++) {
        __m512 wv[Outs];
        for (int o = 0; o < Outs; o++) wv[o] = _mm512_loadu_ps(w + o * t.weight_out + i * kBlock);
#pragma GCC unroll 12
        for (int r = 0; r < Rows; r++) {
          __m512 xv = _mm512_set1_ps(x[r * t.in_row + i]);
          for (int o = 0; o < Outs; o++) sum[r][o] = _mm512_fmadd_ps(xv, wv[o], sum[r][o]);
        }
      }
    }
  for (int r = 0; r < Rows; r++)
    for (int o = 0; o < Outs; o++)
      _mm512_storeu_ps(static_cast<float *>(t.out) + r * t.out_row + o * t.out_block, sum[r][o]);
}

// Channels [first, first + 8) of the tile.
template <int Outs> void outer_half(const OuterTile &t, int64_t first) {
  __m512 sum[8][Outs];
  float *out[2] = {t.out0, t.out1};
  for (int c = 0; c < 8; c++)
    for (int o = 0; o < Outs; o++)
      sum[c][o] = t.add ? _mm512_loadu_ps(out[o] + (first + c) * kBlock) : _mm512_setzero_ps();
  for (int64_t sample = 0; sample < t.samples; sample++)
    for (const Run *run = t.runs; run < t.runs + t.num_runs; run++) {
      int64_t a0 = sample * t.a_sample + run->a * t.vectors, b0 = sample * t.b_sample + run->b * t.vectors;
      int64_t length = run->pixels * t.vectors;
      const float *a = static_cast<const float *>(t.a) + a0 * kBlock + first;
      const float *b[2] = {static_cast<const float *>(t.b0) + b0 * kBlock,
                           Outs > 1 ? static_cast<const float *>(t.b1) + b0 * kBlock : nullptr};
      for (int64_t k = 0; k < length; k++) {
        __m512 bv[Outs];
        for (int o = 0; o < Outs; o++) bv[o] = _mm512_loadu_ps(b[o] + k * kBlock);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) {
          __m512 av = _mm512_set1_ps(a[k * kBlock + c]);
          for (int o = 0; o < Outs; o++) sum[c][o] = _mm512_fmadd_ps(av, bv[o], sum[c][o]);
        }
      }
    }
  for (int c = 0; c < 8; c++)
    for (int o = 0; o < Outs; o++) _mm512_storeu_ps(out[o] + (first + c) * kBlock, sum[c][o]);
}

void outer(const OuterTile &t) {
  for (int64_t first : {0, 8}) t.b1 ? outer_half<2>(t, first) : outer_half<1>(t, first);
}

void pack(const void *src, int64_t stride, int64_t n, void *dst) {
  for (int64_t i = 0; i < n; i++)
    _mm512_storeu_ps(static_cast<float *>(dst) + i * kBlock,
                     _mm512_loadu_ps(static_cast<const float *>(src) + i * stride));
}

template <int... R> void fill(BlockKernels &k, std::integer_sequence<int, R...>) {
  ((k.gather[R][0] = gather<R + 1, 1>, k.gather[R][1] = gather<R + 1, 2>), ...);
}

} // namespace

BlockKernels avx512_block_kernels() {
  BlockKernels k{};
  k.group = 1;
  fill(k, std::make_integer_sequence<int, kMaxRows>());
  k.outer = outer;
  k.pack = pack;
  return k;
}

} // namespace hetero
