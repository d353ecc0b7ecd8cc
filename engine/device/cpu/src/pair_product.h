// pair_product.h: matrix products of bf16 in register tiles, with f32 sums, for AVX-512 BF16.
//
// The instruction vdpbf16ps multiplies pairs: two elements that are adjacent along the summed dimension, in 32 bits. A
// tile reads one operand pair by pair and broadcasts each pair. The other operand is a panel, whose rows are vectors:
//
//   out (rows, columns) += a(row, k) · panel(k, column)    k counts pairs
//
// A panel has kPanel columns; columns beyond those of the matrix are zero. Each sum is one chain of instructions in the
// order of k. Its bits depend neither on the number of rows of the tile nor on the number of threads.
#pragma once

#include <stdint.h>

namespace hetero {

constexpr int64_t kPanel = 48;   // columns of a panel: three vectors
constexpr int64_t kTileRows = 8; // rows of a tile: 8 x 3 vectors of sums fill 24 registers

struct PairTile {
  int64_t pairs;
  const void *a; // pair (row, k) is at a_row*row + a_step*k, counted in pairs
  int64_t a_row, a_step;
  const void *panel; // (pairs, kPanel)
  float *out;
  int64_t out_row; // distance between rows of out, elements
  bool add;        // whether to add to the present values of out
};

// The logits of up to kTileRows classes for the rows of a panel. The logit of class c and row r is sums[c*kPanel + r] +
// bias[c].
struct LogitTile {
  int64_t classes, rows; // number of valid classes and rows
  const float *sums;
  const float *bias;     // bias of the first class, or nullptr
  int32_t first;         // number of the first class
  const int32_t *labels; // labels of the kPanel rows
};

// Statistics of the logits for the rows of a panel, like LogitStats in transformer_table.h.
struct LogitPanel {
  double sum[kPanel];
  float largest[kPanel];
  int32_t higher[kPanel];
};

struct PairTable {
  void (*tile[kTileRows][3])(const PairTile &); // [rows - 1][vectors of columns - 1]

  // Forms pairs of rows 2k and 2k+1 of src (rows, columns <= kPanel). Column c of pair k goes to
  // dst[c/group*group_stride + k*group + c%group], for all kPanel columns. group is kPanel or kTileRows. Missing rows
  // and columns are zero. If sums is not null, the sums of the columns are added to it.
  void (*interleave)(const void *src, int64_t src_row, int64_t rows, int64_t columns, int64_t group,
                     int64_t group_stride, uint32_t *dst, float *sums);
  // Forms pairs of columns 2k and 2k+1 of src (rows <= kPanel, columns even). Row r of pair k goes to dst[k*kPanel +
  // r]. Missing rows are zero.
  void (*transpose)(const void *src, int64_t src_row, int64_t rows, int64_t columns, uint32_t *dst);
  // Computes dst (rows, columns) = src (rows, kPanel) + bias (columns), in f32 or bf16. bias may be null.
  void (*finish[2])(int64_t rows, int64_t columns, const float *src, const float *bias, void *dst, int64_t dst_row);

  // Adds the logits of a tile to the statistics. own holds the logit of each row's label.
  void (*logit_stats)(const LogitTile &, const float *own, LogitPanel *);
  // Computes the gradients (exp(logit - lse) - [class is the label])·scale, rounded to bf16, and stores them twice.
  // Class c is the row dst + c*dst_row. Classes 2k and 2k+1 are the pairs pairs[k*kPanel …]. Missing classes and rows
  // are zero.
  void (*logit_diff)(const LogitTile &, const float *lse, float scale, uint16_t *dst, int64_t dst_row, uint32_t *pairs);
  float (*sum)(int64_t n, const uint16_t *src); // returns the sum of n bf16 elements
};

// Returns the loops for this CPU. Returns nullptr if the CPU lacks the instructions, or if it has matrix tiles (AMX),
// which oneDNN uses.
const PairTable *pair_table();

} // namespace hetero
