// panel_simd.h: the loops of panel_product.h, for the unit that the including file defines.
#pragma once

#include "panel_product.h"
#include "simd.h"
#include "transpose_simd.h"
#include "unroll.h"

namespace hetero {
namespace {

template <class Unit, int rows, int vectors> void tile(const PanelTile &t) {
  __m512 sum[rows][vectors];
  HT_UNROLL(8)
  for (int r = 0; r < rows; r++) {
    HT_UNROLL(3)
    for (int v = 0; v < vectors; v++)
      sum[r][v] = t.add ? _mm512_loadu_ps(t.out + r * t.out_row + v * kLanes) : _mm512_setzero_ps();
  }
  const uint32_t *a = (const uint32_t *)t.a, *panel = (const uint32_t *)t.panel;
  for (int64_t k = 0; k < t.units; k++, a += t.a_step, panel += t.panel_row) {
    typename Unit::Vector b[vectors];
    HT_UNROLL(3)
    for (int v = 0; v < vectors; v++) b[v] = Unit::load(panel + v * kLanes);
    HT_UNROLL(8)
    for (int r = 0; r < rows; r++) {
      const typename Unit::Vector f = Unit::spread(a[r * t.a_row]);
      HT_UNROLL(3)
      for (int v = 0; v < vectors; v++) sum[r][v] = Unit::add_product(sum[r][v], f, b[v]);
    }
  }
  HT_UNROLL(8)
  for (int r = 0; r < rows; r++) {
    HT_UNROLL(3)
    for (int v = 0; v < vectors; v++) _mm512_storeu_ps(t.out + r * t.out_row + v * kLanes, sum[r][v]);
  }
}

SIMD_INLINE __mmask16 lanes_of(int64_t n) { return n >= kLanes ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }

void transpose(const void *src_, int64_t src_row, int64_t rows, int64_t units, uint32_t *dst) {
  const uint32_t *src = (const uint32_t *)src_;
  for (int64_t from = 0; from < kPanel; from += kLanes)
    for (int64_t c = 0; c < units; c += kLanes) {
      const __mmask16 mask = lanes_of(units - c);
      __m512i v[16];
      for (int64_t r = 0; r < kLanes; r++)
        v[r] =
            from + r < rows ? _mm512_maskz_loadu_epi32(mask, src + (from + r) * src_row + c) : _mm512_setzero_si512();
      transpose_16x16(v);
      for (int64_t k = 0; k < kLanes && c + k < units; k++) _mm512_storeu_si512(dst + (c + k) * kPanel + from, v[k]);
    }
}

template <class T>
void finish(int64_t rows, int64_t columns, const float *src, const float *bias, void *dst_, int64_t dst_row) {
  T *dst = (T *)dst_;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += kLanes) {
      const int lanes = columns - c < kLanes ? int(columns - c) : kLanes;
      F32 v = load(src + r * kPanel + c);
      if (bias) v = v + load_first(bias + c, lanes);
      store_first(dst + r * dst_row + c, v, lanes);
    }
}

// Returns the loops for a unit with the given number of elements.
template <class Unit> constexpr PanelTable panels_of(int64_t elements, decltype(PanelTable::interleave) interleave) {
#define ROW(r)                                                                                                         \
  { tile<Unit, r, 1>, tile<Unit, r, 2>, tile<Unit, r, 3> }
  return {elements,
          {ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8)},
          interleave,
          transpose,
          {finish<float>, finish<Bf16>}};
#undef ROW
}

} // namespace
} // namespace hetero
