// rows_simd.h: iterates over the rows of units (rows.h) with vectors of sixteen lanes.
#pragma once

#include "rows.h"
#include "simd.h"

namespace hetero {
namespace {

constexpr int64_t kTileRows = 256; // number of rows whose sum is computed in f32; the sums are then added in f64

// Calls span(Bool<full>, at, word, n, lanes) for each run of n rows among rows [from, to) of a unit. Row i of the run
// begins at element at + i*row_stride, and has word number word + i*word_row. If full is false, only the first `lanes`
// lanes of a row exist.
template <class Span> SIMD_INLINE void walk(const Rows &r, int64_t unit, int64_t from, int64_t to, Span span) {
  const int unit_lanes = unit + 1 == r.units ? r.last_unit_lanes : 16;
  int64_t image = from / r.rows, row = from % r.rows;
  for (int64_t left = to - from; left > 0; image++, row = 0) {
    const int64_t n = left < r.rows - row ? left : r.rows - row;
    const int64_t at = image * r.image_stride + unit * r.unit_stride + row * r.row_stride;
    const int64_t word = image * r.word_image + unit * r.word_unit + row * r.word_row;
    const bool tail = r.tail_lanes < 16 && row + n == r.rows;
    left -= n;
    if (unit_lanes < 16) {
      span(Bool<false>{}, at, word, n, unit_lanes);
      continue;
    }
    if (n > tail) span(Bool<true>{}, at, word, n - tail, 16);
    if (tail) span(Bool<false>{}, at + (n - 1) * r.row_stride, word + (n - 1) * r.word_row, 1, r.tail_lanes);
  }
}

// Calls row(chain, at, word, Bool<full>, lanes) for rows [from, to) of a unit. Consecutive rows are assigned to four
// chains of sums in turn. In a single chain, each addition would have to wait for the previous one.
template <class Row> SIMD_INLINE void each_row(const Rows &r, int64_t unit, int64_t from, int64_t to, Row row) {
  walk(r, unit, from, to, [&](auto full, int64_t at, int64_t word, int64_t n, int lanes) {
    int64_t i = 0;
    if (full.value) {
      for (; i + 4 <= n; i += 4, at += 4 * r.row_stride, word += 4 * r.word_row) {
        row(0, at, word, full, lanes);
        row(1, at + r.row_stride, word + r.word_row, full, lanes);
        row(2, at + 2 * r.row_stride, word + 2 * r.word_row, full, lanes);
        row(3, at + 3 * r.row_stride, word + 3 * r.word_row, full, lanes);
      }
    }
    for (; i < n; i++, at += r.row_stride, word += r.word_row) row(0, at, word, full, lanes);
  });
}

// Like each_row, for interleaved units: calls row(u, at, word, Bool<full>, lanes) for units [unit, unit + units) of a
// row, then for the next row. Memory is thus accessed in order.
template <class Row>
SIMD_INLINE void each_row_of_units(const Rows &r, int64_t unit, int64_t units, int64_t from, int64_t to, Row row) {
  const bool last = unit + units == r.units && r.last_unit_lanes < 16;
  for (int64_t i = from; i < to; i++) {
    int64_t at = i * r.row_stride + unit * r.unit_stride, word = i * r.word_row + unit * r.word_unit;
    int64_t u = 0;
    for (; u < units - last; u++, at += r.unit_stride, word += r.word_unit) row(u, at, word, Bool<true>{}, 16);
    if (last) row(u, at, word, Bool<false>{}, r.last_unit_lanes);
  }
}

struct Chains {
  F32 c[4] = {zero(), zero(), zero(), zero()};
  SIMD_INLINE F32 total() const { return (c[0] + c[1]) + (c[2] + c[3]); }
};

// Writes the sum of a channel to all of its lanes in out.
SIMD_INLINE void fold(int64_t unit_channels, F32 v, double *out) {
  float lanes[16];
  store(lanes, v);
  for (int l = 0; l < 16; l++) out[l] = lanes[l];
  if (unit_channels == 16) return;
  for (int c = 0; c < unit_channels; c++) {
    double sum = 0;
    for (int l = c; l < 16; l += int(unit_channels)) sum += out[l];
    for (int l = c; l < 16; l += int(unit_channels)) out[l] = sum;
  }
}

} // namespace
} // namespace hetero
