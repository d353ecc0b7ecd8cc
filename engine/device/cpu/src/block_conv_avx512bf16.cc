// block_conv_avx512bf16.cc: register tiles of block_conv.h for bf16, with f32 sums.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "block_conv.h"

namespace hetero {

namespace {

constexpr int64_t kPairs = kBlock / 2;

__m512bh load(const uint16_t *p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }

// One pair of neighbours in every lane.
__m512bh spread(const uint16_t *p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

template <int Rows, int Outs> void gather(const GatherTile &t) {
  __m512 sum[Rows][Outs];
  for (int o = 0; o < Outs; o++) {
    __m512 start = t.bias ? _mm512_loadu_ps(t.bias + o * kBlock) : _mm512_setzero_ps();
    for (int r = 0; r < Rows; r++) sum[r][o] = start;
  }
  auto *in = static_cast<const uint16_t *>(t.in);
  auto *weight = static_cast<const uint16_t *>(t.weight);
  for (int64_t block = 0; block < t.in_blocks; block++, in += t.in_block, weight += t.weight_in)
    for (int64_t k = 0; k < t.num_taps; k++) {
      const uint16_t *x = in + t.taps[k].pixel * kBlock, *w = weight + t.taps[k].tap * kTile;
      for (int64_t i = 0; i < kPairs; i++) {
        __m512bh wv[Outs];
        for (int o = 0; o < Outs; o++) wv[o] = load(w + o * t.weight_out + i * 2 * kBlock);
#pragma GCC unroll 12
        for (int r = 0; r < Rows; r++) {
          __m512bh xv = spread(x + r * t.in_row + 2 * i);
          for (int o = 0; o < Outs; o++) sum[r][o] = _mm512_dpbf16_ps(sum[r][o], xv, wv[o]);
        }
      }
    }
  for (int r = 0; r < Rows; r++)
    for (int o = 0; o < Outs; o++) {
      auto *out = static_cast<uint16_t *>(t.out) + r * t.out_row + o * t.out_block;
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(sum[r][o])));
    }
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
      const uint16_t *a = static_cast<const uint16_t *>(t.a) + (a0 * kBlock + first) * 2;
      const uint16_t *b[2] = {static_cast<const uint16_t *>(t.b0) + b0 * kBlock * 2,
                              Outs > 1 ? static_cast<const uint16_t *>(t.b1) + b0 * kBlock * 2 : nullptr};
      for (int64_t k = 0; k < length; k++) {
        __m512bh bv[Outs];
        for (int o = 0; o < Outs; o++) bv[o] = load(b[o] + k * kBlock * 2);
#pragma GCC unroll 8
        for (int c = 0; c < 8; c++) {
          __m512bh av = spread(a + (k * kBlock + c) * 2);
          for (int o = 0; o < Outs; o++) sum[c][o] = _mm512_dpbf16_ps(sum[c][o], av, bv[o]);
        }
      }
    }
  for (int c = 0; c < 8; c++)
    for (int o = 0; o < Outs; o++) _mm512_storeu_ps(out[o] + (first + c) * kBlock, sum[c][o]);
}

void outer(const OuterTile &t) {
  for (int64_t first : {0, 8}) t.b1 ? outer_half<2>(t, first) : outer_half<1>(t, first);
}

// Two samples side by side: channel c of both is pair c.
void pack(const void *src, int64_t stride, int64_t n, void *dst) {
  auto *s = static_cast<const uint16_t *>(src);
  auto *d = static_cast<uint16_t *>(dst);
  for (int64_t i = 0; i < n; i += 2, d += 2 * kBlock) {
    __m256i even = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(s + i * stride));
    __m256i odd = i + 1 < n ? _mm256_loadu_si256(reinterpret_cast<const __m256i *>(s + (i + 1) * stride))
                            : _mm256_setzero_si256();
    __m512i low = _mm512_cvtepu16_epi32(even), high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
    _mm512_storeu_si512(d, _mm512_or_si512(low, high));
  }
}

template <int... R> void fill(BlockKernels &k, std::integer_sequence<int, R...>) {
  ((k.gather[R][0] = gather<R + 1, 1>, k.gather[R][1] = gather<R + 1, 2>), ...);
}

} // namespace

BlockKernels avx512bf16_block_kernels() {
  BlockKernels k{};
  k.group = 2;
  fill(k, std::make_integer_sequence<int, kMaxRows>());
  k.outer = outer;
  k.pack = pack;
  return k;
}

} // namespace hetero
