// pool_simd.h: max and average pooling of one plane, which consists of up to 16 channels of one image. A pixel is one
// vector: src (H, W, 16), dst (OH, OW, 16).
//
// Gradients are gathered: every pixel of diff_src sums the contributions of its windows, in the order of the windows,
// and is written once.
#pragma once

#include "rows_simd.h"
#include "simd_table.h"

namespace hetero {
namespace {

// Loads argmax entries as lanes.
SIMD_INLINE I32 load_taps(const uint8_t *a, int lanes) {
  uint8_t t[kLanes] = {};
  memcpy(t, a, size_t(lanes));
#if SIMD_AVX512
  return {{(PartI)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)t))}};
#else
  I32 r;
  for (int i = 0; i < kLanes; i++) r.p[i / kPartLanes][i % kPartLanes] = t[i];
  return r;
#endif
}

SIMD_INLINE void store_taps(uint8_t *a, I32 v, int lanes) {
  uint8_t t[kLanes];
#if SIMD_AVX512
  _mm_storeu_si128((__m128i *)t, _mm512_cvtepi32_epi8((__m512i)v.p[0]));
#else
  for (int i = 0; i < kLanes; i++) t[i] = uint8_t(v.p[i / kPartLanes][i % kPartLanes]);
#endif
  memcpy(a, t, size_t(lanes));
}

SIMD_INLINE I32 load_taps(const int32_t *a, int lanes) {
  I32 r = all(0);
  memcpy(r.p, a, size_t(lanes) * sizeof *a);
  return r;
}

SIMD_INLINE void store_taps(int32_t *a, I32 v, int lanes) { memcpy(a, v.p, size_t(lanes) * sizeof *a); }

// Calls body(Bool<full>, lanes); full is true if the plane has all 16 lanes.
template <class Body> SIMD_INLINE void with_lanes(const PoolPlane &p, Body body) {
  if (p.lanes == kLanes)
    body(Bool<true>{}, kLanes);
  else
    body(Bool<false>{}, p.lanes);
}

// Calls window(output pixel, oy, ox) for all output pixels.
template <class Window> SIMD_INLINE void each_window(const PoolPlane &p, Window window) {
  for (int oy = 0; oy < p.y.out; oy++)
    for (int ox = 0; ox < p.x.out; ox++) window(int64_t(oy) * p.x.out + ox, oy, ox);
}

// Calls tap(input pixel, tap number) for the taps of window (oy, ox) that are not padding, row by row.
template <class Tap> SIMD_INLINE void each_tap(const PoolPlane &p, int oy, int ox, Tap tap) {
  const PoolAxis &y = p.y, &x = p.x;
  for (int ky = y.first[oy]; ky < y.last[oy]; ky++) {
    const int64_t row = int64_t(oy * y.stride - y.padding + ky * y.dilation) * x.in + ox * x.stride - x.padding;
    for (int kx = x.first[ox]; kx < x.last[ox]; kx++) tap(row + kx * x.dilation, ky * x.kernel + kx);
  }
}

// For each input pixel, calls source(output pixel, tap number, oy, ox) for every window that contains the pixel, then
// done(input pixel).
template <class Source, class Done> SIMD_INLINE void each_source(const PoolPlane &p, Source source, Done done) {
  const PoolAxis &y = p.y, &x = p.x;
  for (int iy = 0; iy < y.in; iy++) {
    for (int ix = 0; ix < x.in; ix++) {
      for (int a = y.begin[iy]; a < y.begin[iy + 1]; a++)
        for (int b = x.begin[ix]; b < x.begin[ix + 1]; b++)
          source(int64_t(y.window[a]) * x.out + x.window[b], y.tap[a] * x.kernel + x.tap[b], y.window[a], x.window[b]);
      done(int64_t(iy) * x.in + ix);
    }
  }
}

// Prefetches the pixels that the window below window (oy, ox) reads, but window (oy, ox) does not. Rows are too far
// apart for the hardware prefetcher.
template <class T> SIMD_INLINE void ask_ahead(const PoolPlane &p, const T *src, int oy, int ox) {
  const PoolAxis &y = p.y, &x = p.x;
  const int64_t row = int64_t(oy * y.stride - y.padding + (y.kernel - 1) * y.dilation + 1);
  for (int j = 0; j < y.stride && row + j < y.in; j++)
    for (int i = 0; i < x.stride; i++) __builtin_prefetch(src + ((row + j) * x.in + ox * x.stride + i) * p.step);
}

// --- max -----------------------------------------------------------------------------------------

// Among equal values, the first one is the maximum. A NaN counts as larger than any number, so that the result is NaN.
template <class T, class Index> void max_pool(const PoolPlane &plane, const void *src_, void *dst_, void *argmax_) {
  const PoolPlane p = plane; // a local copy: stores of one-byte entries may alias any object, including plane
  const T *src = static_cast<const T *>(src_);
  T *dst = static_cast<T *>(dst_);
  Index *argmax = static_cast<Index *>(argmax_);
  with_lanes(p, [&](auto full, int lanes) {
    each_window(p, [&](int64_t pixel, int oy, int ox) {
      ask_ahead(p, src, oy, ox);
      const bool empty = p.y.first[oy] >= p.y.last[oy] || p.x.first[ox] >= p.x.last[ox];
      F32 best = all(-INFINITY);
      I32 winner = all(int32_t(empty ? -1 : p.y.first[oy] * p.x.kernel + p.x.first[ox]));
      each_tap(p, oy, ox, [&](int64_t in, int tap) {
        const F32 v = load_row<full.value>(src + in * p.step, lanes);
        const Mask wins = beats(v, best);
        best = select(wins, v, best);
        winner = select(wins, all(int32_t(tap)), winner);
      });
      store_row<full.value>(dst + pixel * p.step, best, lanes);
      if (argmax) store_taps(argmax + pixel * p.step, winner, lanes);
    });
  });
}

template <class T, class Index>
void max_pool_diff(const PoolPlane &plane, const void *diff_dst_, const void *argmax_, void *diff_src_) {
  const PoolPlane p = plane;
  const T *diff_dst = static_cast<const T *>(diff_dst_);
  const Index *argmax = static_cast<const Index *>(argmax_);
  T *diff_src = static_cast<T *>(diff_src_);
  with_lanes(p, [&](auto full, int lanes) {
    F32 sum = zero();
    each_source(
        p,
        [&](int64_t pixel, int tap, int, int) {
          const Mask won = load_taps(argmax + pixel * p.step, lanes) == all(int32_t(tap));
          sum = sum + select(won, load_row<full.value>(diff_dst + pixel * p.step, lanes), zero());
        },
        [&](int64_t in) {
          store_row<full.value>(diff_src + in * p.step, sum, lanes);
          sum = zero();
        });
  });
}

// --- average -------------------------------------------------------------------------------------

// Returns the divisor of a window's sum. If the window contains only padding, the divisor is 1, so that the mean is 0.
SIMD_INLINE float divisor(const PoolPlane &p, bool count_padding, int oy, int ox) {
  if (count_padding) return float(p.y.kernel * p.x.kernel);
  const int taps = (p.y.last[oy] - p.y.first[oy]) * (p.x.last[ox] - p.x.first[ox]);
  return float(taps > 0 ? taps : 1);
}

template <class T> void avg_pool(const PoolPlane &p, bool count_padding, const void *src_, void *dst_) {
  const T *src = static_cast<const T *>(src_);
  T *dst = static_cast<T *>(dst_);
  with_lanes(p, [&](auto full, int lanes) {
    each_window(p, [&](int64_t pixel, int oy, int ox) {
      F32 sum = zero();
      each_tap(p, oy, ox, [&](int64_t in, int) { sum = sum + load_row<full.value>(src + in * p.step, lanes); });
      store_row<full.value>(dst + pixel * p.step, sum / all(divisor(p, count_padding, oy, ox)), lanes);
    });
  });
}

template <class T> void avg_pool_diff(const PoolPlane &p, bool count_padding, const void *diff_dst_, void *diff_src_) {
  const T *diff_dst = static_cast<const T *>(diff_dst_);
  T *diff_src = static_cast<T *>(diff_src_);
  with_lanes(p, [&](auto full, int lanes) {
    F32 sum = zero();
    each_source(
        p,
        [&](int64_t pixel, int, int oy, int ox) {
          const F32 d = load_row<full.value>(diff_dst + pixel * p.step, lanes);
          sum = sum + d / all(divisor(p, count_padding, oy, ox));
        },
        [&](int64_t in) {
          store_row<full.value>(diff_src + in * p.step, sum, lanes);
          sum = zero();
        });
  });
}

// --- whole images --------------------------------------------------------------------------------

template <class T>
void sum_rows(const Rows &r, int64_t unit, int64_t from, int64_t to, const void *src_, double *sums) {
  const T *src = static_cast<const T *>(src_);
  for (int l = 0; l < 16; l++) sums[l] = 0;
  for (int64_t end; from < to; from = end) {
    end = to < from + kTileRows ? to : from + kTileRows;
    Chains s;
    each_row(r, unit, from, end, [&](int chain, int64_t at, int64_t, auto full, int lanes) {
      s.c[chain] = s.c[chain] + load_row<full.value>(src + at, lanes);
    });
    double tile[16];
    fold(r.unit_channels, s.total(), tile);
    for (int l = 0; l < 16; l++) sums[l] += tile[l];
  }
}

template <class T>
void spread_rows(const Rows &r, int64_t unit, int64_t from, int64_t to, const float *values, void *dst_) {
  T *dst = static_cast<T *>(dst_);
  const F32 v = load(values);
  walk(r, unit, from, to, [&](auto full, int64_t at, int64_t, int64_t n, int lanes) {
    for (int64_t i = 0; i < n; i++, at += r.row_stride) store_row<full.value>(dst + at, v, lanes);
  });
}

constexpr PoolTable pool_table() {
  return {{{max_pool<float, uint8_t>, max_pool<float, int32_t>}, {max_pool<Bf16, uint8_t>, max_pool<Bf16, int32_t>}},
          {{max_pool_diff<float, uint8_t>, max_pool_diff<float, int32_t>},
           {max_pool_diff<Bf16, uint8_t>, max_pool_diff<Bf16, int32_t>}},
          {avg_pool<float>, avg_pool<Bf16>},
          {avg_pool_diff<float>, avg_pool_diff<Bf16>},
          {sum_rows<float>, sum_rows<Bf16>},
          {spread_rows<float>, spread_rows<Bf16>}};
}

} // namespace
} // namespace hetero
