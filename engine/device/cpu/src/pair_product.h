// pair_product.h: matrix products of bf16 in register tiles, with f32 sums, for AVX-512 BF16.
//
// The instruction vdpbf16ps multiplies pairs: two elements that are adjacent along the summed dimension, in 32 bits.
// One operand of a tile is read pair by pair and broadcast; the other one is a panel, whose rows are vectors:
//
//   out (rows, columns) += a(row, k) · panel(k, column)    k counts pairs
//
// A panel has kPanel columns; columns that the matrix lacks are zero. Each sum is one chain of instructions in the order
// of k. It depends on neither the number of rows of the tile nor the number of threads.
#pragma once

#include <stdint.h>

namespace hetero {

constexpr int64_t kPanel = 48;   // columns of a panel: three vectors
constexpr int64_t kTileRows = 8; // 8 x 3 vectors of sums fill 24 registers

struct PairTile {
  int64_t pairs;
  const void *a; // pair (row, k) is at a_row*row + a_step*k, in pairs
  int64_t a_row, a_step;
  const void *panel; // (pairs, kPanel)
  float *out;
  int64_t out_row; // elements
  bool add;        // to the present values of out
};

// Logits of up to kTileRows classes for the rows of a panel: logit (class c, row r) is sums[c*kPanel + r] + bias[c].
struct LogitTile {
  int64_t classes, rows; // valid ones
  const float *sums;
  const float *bias;     // of the first class, or nullptr
  int32_t first;         // class
  const int32_t *labels; // of the rows: kPanel
};

// Statistics of the logits of the rows of a panel, as LogitStats in transformer_table.h.
struct LogitPanel {
  double sum[kPanel];
  float largest[kPanel];
  int32_t higher[kPanel];
};

struct PairTable {
  void (*tile[kTileRows][3])(const PairTile &); // [rows - 1][vectors of columns - 1]

  // Pairs of rows 2k and 2k+1 of src (rows, columns <= kPanel): column c of pair k goes to
  // dst[c/group*group_stride + k*group + c%group], for all kPanel columns. group is kPanel or kTileRows. Missing rows and
  // columns are zero. If sums is not null, the columns' sums are added to it.
  void (*interleave)(const void *src, int64_t src_row, int64_t rows, int64_t columns, int64_t group,
                     int64_t group_stride, uint32_t *dst, float *sums);
  // Pairs of columns 2k and 2k+1 of src (rows <= kPanel, columns even): row r of pair k goes to dst[k*kPanel + r].
  // Missing rows are zero.
  void (*transpose)(const void *src, int64_t src_row, int64_t rows, int64_t columns, uint32_t *dst);
  // dst (rows, columns), bf16 or f32, = src (rows, kPanel) + bias (columns), which may be null.
  void (*finish[2])(int64_t rows, int64_t columns, const float *src, const float *bias, void *dst, int64_t dst_row);

  // own has the logits of the rows' labels.
  void (*logit_stats)(const LogitTile &, const float *own, LogitPanel *);
  // The gradients (exp(logit - lse) - [class is the label])·scale, rounded to bf16, twice: class c is the row
  // dst + c*dst_row; classes 2k and 2k+1 are the pairs pairs[k*kPanel …]. Missing classes and rows are zero.
  void (*logit_diff)(const LogitTile &, const float *lse, float scale, uint16_t *dst, int64_t dst_row, uint32_t *pairs);
  float (*sum)(int64_t n, const uint16_t *src); // of bf16 elements
};

// The loops for this CPU, nullptr if it lacks the instructions, or if it has matrix tiles (AMX), which oneDNN uses.
const PairTable *pair_table();

} // namespace hetero
