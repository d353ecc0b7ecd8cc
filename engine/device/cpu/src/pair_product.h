// pair_product.h: loops for bf16 that run between the matrix products of panel_product.h, for AVX-512 BF16.
#pragma once

#include <stdint.h>

#include "panel_product.h"

namespace hetero {

// Two rows of scores of attention, and the gradients of their probabilities. Row i has n[i] keys. The results are zero
// for the keys from n[i] up to `padded`, which is a multiple of 16.
struct ScoreRows {
  int64_t n[2], padded;
  const float *scores[2], *diff[2]; // diff: gradients of the probabilities after dropout
  float scale, lse[2], inner[2];    // inner: dot product of a row of dst and its gradient
  const uint8_t *keep[2];           // one byte for each key; nullptr without dropout
  float factor;                     // factor of the probabilities that dropout keeps
  uint32_t *p, *d;                  // pairs of both rows: probabilities after dropout; gradients of scores
  uint16_t *d_row[2];               // gradients of scores of each row
};

// The logits of up to kTileRows classes for the rows of a panel. The logit of class c and row r is:
//
//     sums[c*kPanel + r] + bias[c]
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

struct PairTable : PanelTable {
  // Adds the logits of a tile to the statistics. own holds the logit of each row's label.
  void (*logit_stats)(const LogitTile &, const float *own, LogitPanel *);
  // Computes the gradients of logits, rounds them to bf16, and stores them twice:
  //
  //     gradient = (exp(logit - lse) - [class is the label])·scale
  //
  // Class c is row dst + c*dst_row. Classes 2k and 2k+1 are also the pairs from pairs[k*kPanel] on. Missing classes and
  // rows become zero.
  void (*logit_diff)(const LogitTile &, const float *lse, float scale, uint16_t *dst, int64_t dst_row, uint32_t *pairs);
  float (*sum)(int64_t n, const uint16_t *src); // returns the sum of n bf16 elements

  // Forms pairs of rows 2k and 2k+1 of src (rows, columns). Column c of pair k goes to dst[k*width + c]. Missing rows
  // and columns become zero. width is a multiple of 16.
  void (*pair_rows)(const void *src, int64_t src_row, int64_t rows, int64_t columns, int64_t width, uint32_t *dst);
  float (*dot)(int64_t n, const void *a, const void *b); // returns the sum of the products of n bf16 elements
  // Computes dst[i] = exp((scores[i] - largest)·scale) for n scores, rounded to bf16. largest is the largest score, and
  // scale must be positive. dst[i] is 0 if keep[i] is 0, and for i from n up to `padded`, which is a multiple of 16.
  // keep may be nullptr. sum is the sum of all exponentials, including those that keep removes.
  void (*exponentials)(int64_t n, int64_t padded, const float *scores, float scale, const uint8_t *keep, uint16_t *dst,
                       float *largest, float *sum);
  // Computes the probabilities of two rows from their scores, and the gradients of the scores.
  void (*score_diff)(const ScoreRows &);

  // One row of BiasGELU and of its gradient, as in transformer_table.h. The index is 1 for the tanh approximation.
  void (*bias_gelu[2])(int64_t n, const void *src, const float *bias, void *dst);
  void (*bias_gelu_diff[2])(int64_t n, const void *diff, const void *src, const float *bias, void *diff_src,
                            float *diff_bias);
};

// Returns the loops for this CPU, or nullptr if the CPU lacks the instructions.
const PairTable *pair_table();

} // namespace hetero
