// transformer_table.h: the vectorised loops of the ops of transformers, compiled once per instruction set.
//
// Each loop works in one thread. Index bf16 is 0 for f32 tensors and 1 for bf16 tensors. Arithmetic is in f32. product
// and chain use fused multiply-adds if the instruction set has them, as oneDNN's products do. The results of all other
// loops are bit-equal for all instruction sets.
//
// With AVX-512 BF16, the loops of pair_product.h replace most of these for bf16 tensors. Their results are not
// bit-equal.
#pragma once

#include <stdint.h>

namespace hetero {

// A small product, with 1 <= rows <= 8:
//
//     out (rows, 32) = coefficients (rows, k) · x (k, 32)
//
// If `add` is true, the product is added to out.
struct SmallProduct {
  int rows;
  int64_t k;
  const float *coefficients; // element (r, i) is at r*row + i*step
  int64_t row, step;
  const float *x; // row i is at i*x_row
  int64_t x_row;
  float *out; // row r is at r*out_row
  int64_t out_row;
  bool add;
};

// Statistics of one row's logits over some classes: the largest logit, the sum of exp(logit - largest), and the number
// of classes that rank before the label (see LossTable::Row).
struct LogitStats {
  double sum;
  float largest;
  int32_t higher;
};

struct TransformerTable {
  void (*product)(const SmallProduct &);
  // Computes one element of product: the sum of a[i]·b[i] in the same order, with the same rounding.
  float (*chain[2])(int64_t n, const void *a, const void *b);

  // Computes dst = a + b + c, in this order. b and c may be nullptr.
  void (*sum_rows[2])(int64_t n, const float *a, const float *b, const float *c, void *dst);
  void (*add_row[2])(int64_t n, const void *src, float *sum);              // sum += src
  void (*widen[2])(int64_t n, const void *src, float factor, float *dst);  // dst = src·factor
  void (*narrow[2])(int64_t n, const float *src, float factor, void *dst); // dst = src·factor

  // Computes one row of LayerNorm. residual and sum are nullptr if the op does not have them.
  void (*normalize[2])(int64_t c, const void *src, const void *residual, const float *gamma, const float *beta,
                       float eps, void *dst, void *sum, float *mean, float *inverse);
  // Computes one row of LayerNormDiff, and adds to diff_gamma and diff_beta. plus may be nullptr.
  void (*normalize_diff[2])(int64_t c, const void *diff, const void *x, float mean, float inverse, const float *gamma,
                            const void *plus, void *diff_x, float *diff_gamma, float *diff_beta);

  // Compute one row of BiasGELU and of its gradient. The gradient adds to diff_bias. The second index is 1 for the tanh
  // approximation.
  void (*bias_gelu[2][2])(int64_t n, const void *src, const float *bias, void *dst);
  void (*bias_gelu_diff[2][2])(int64_t n, const void *diff, const void *src, const float *bias, void *diff_src,
                               float *diff_bias);

  // Replaces n scores by exp(score - largest), and the elements from n to `padded` by 0. Returns the largest score and
  // the sum of the exponentials.
  void (*exponentials)(int64_t n, int64_t padded, float *scores, float *largest, float *sum);
  // Multiplies n probabilities by factor where keep is 1, and sets the others to 0.
  void (*drop)(int64_t n, const uint8_t *keep, float factor, float *p);
  // Computes the gradient of a row of scores:
  //
  //     p = exp(score - lse)
  //     m = factor if dropout keeps the key, 0 if it does not, 1 if keep is nullptr
  //     scores = m·p
  //     diff = p·(m·diff - inner)
  //
  // Elements from n to `padded` become 0.
  void (*score_diff)(int64_t n, int64_t padded, float *scores, float *diff, float lse, float inner, const uint8_t *keep,
                     float factor);

  // Computes the scores of one query and n keys. Rows are row_bytes apart. q has the type of the rows.
  //
  //     scores[j] = (q · row j)·scale
  void (*key_scores[2])(int64_t n, int64_t d, const void *q, const void *rows, int64_t row_bytes, float scale,
                        float *scores);
  // Adds to sum (d) the rows of n values, each multiplied by its element of p.
  void (*add_values[2])(int64_t n, int64_t d, const float *p, const void *rows, int64_t row_bytes, float *sum);

  // Adds n <= 32 logits to the statistics of a row. own is the logit of the row's label. label is the number of the
  // row's label, counted from the first of these logits. It may be negative, or n or more. bias may be nullptr.
  void (*logit_stats)(int n, const float *logits, const float *bias, float own, int64_t label, LogitStats *);
  // Replaces n <= 32 logits by the gradients (exp(logit + bias - lse) - (1 for the label, else 0))·scale.
  void (*logit_diff)(int n, float *logits, const float *bias, float lse, float scale, int64_t label);
};

extern const TransformerTable transformer_generic, transformer_avx2, transformer_avx512;

const TransformerTable &transformer();

} // namespace hetero
