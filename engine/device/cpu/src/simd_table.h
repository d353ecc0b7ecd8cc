// simd_table.h: the vectorised loops of the library, compiled once per instruction set. simd() returns the set in use.
//
// Each loop processes a piece of a tensor in one thread; the .cc file of each op divides the work. The index bf16 is 0
// for f32 tensors and 1 for bf16 tensors. Arithmetic is in f32. Operands need no alignment, and results may replace
// operands in place.
#pragma once

#include "batchnorm_table.h"
#include "hetero_device.h"

namespace hetero {

// Elementwise ops on n elements.
struct ElementwiseTable {
  using Unary = void (*)(int64_t n, const void *src, void *dst);
  using Binary = void (*)(int64_t n, const void *a, const void *b, void *dst);
  using Scale = void (*)(int64_t n, const void *src, float factor, void *dst);
  Unary unary[2][HT_ABS + 1];       // [bf16][ht_unary_func]
  Binary unary_diff[2][HT_ABS + 1]; // a is diff_dst, b is src
  Binary binary[2][HT_MIN + 1][2];  // [bf16][ht_binary_func][whether b is one element, which is broadcast]
  Scale scale[2];
};

// Factors of an optimizer step for one segment, with the names of op_optim.go. decay and rate include lr and the
// segment's factors.
struct OptimFactors {
  float scale, decay, rate;
  float momentum;                               // SGD only
  float beta1, rest1, beta2, rest2, root2, eps; // AdamW only: rest = 1 - beta, root2 = sqrt(1 - beta2^t)
};

// Optimizers on n elements of the flat buffers. Operations are rounded separately in the order of op_optim.go, so that
// results are bit-equal for all instruction sets.
struct OptimTable {
  double (*sum_squares)(int64_t n, const float *x);
  void (*sgd[2][2])(int64_t n, const OptimFactors &, float *value, const float *grad,
                    float *moment); // [moment][nesterov]
  void (*adamw)(int64_t n, const OptimFactors &, float *value, const float *grad, float *m, float *v);
};

// Loops over the logits x[0..classes) of a sample.
struct LossTable {
  // Statistics of x:
  //
  //     largest = max(x)
  //     sum_exp = sum of exp(x - largest)
  //     sum = sum of (x - largest)
  //
  // higher is the number of classes that rank before the class `label`: with a larger logit, or with an equal logit and
  // a lower number. It is 0 if label < 0.
  struct Row {
    float largest;
    double sum_exp, sum;
    int64_t higher;
  };
  Row (*row[2])(int64_t classes, const void *x, int64_t label);
  // The labels of a sample. The target probability q is base + hot for the label, base + second_hot for the second
  // label, and base for all other classes.
  struct Target {
    int64_t label, second; // second = label if there is one label
    float hot, second_hot, base;
  };
  // Computes diff = (exp(x - lse) - q)·scale.
  void (*diff[2])(int64_t classes, const void *x, const Target &target, float lse, float scale, void *diff);
};

// A sample to which dropout is applied. The loops process n of its elements, at positions from, from + 1 …, where
// `from` is a multiple of 64.
struct DropoutSample {
  uint64_t id;
  uint32_t key[2], stream;
  uint64_t threshold; // an element is dropped if its random number is below threshold
  float factor;
};

struct DropoutTable {
  void (*apply[2])(const DropoutSample &, int64_t from, int64_t n, const void *src, void *dst);
  // Writes one byte per position: 1 if the element is kept, else 0. keep rounds n up to a multiple of 64, so it may
  // write up to 63 bytes beyond n.
  void (*keep)(const DropoutSample &, int64_t from, int64_t n, uint8_t *keep);
};

// Tables for one dimension of a pooling:
//
//   - Tap k of window o is element o*stride - padding + k*dilation of the input.
//   - Taps [first[o], last[o]) of window o are inside the input. Its other taps are in the padding.
//   - For all j in [begin[i], begin[i+1]), tap[j] of window[j] reads element i. The windows are in ascending order.
struct PoolAxis {
  int32_t in, out, kernel, stride, padding, dilation;
  const int32_t *first, *last;
  const int32_t *begin, *window, *tap;
};

// One plane of a pooling: up to 16 channels of an image. From one pixel to the next, there are `step` elements, in src
// and in dst.
struct PoolPlane {
  PoolAxis y, x;
  int64_t step;
  int lanes;
};

struct PoolTable {
  // Entries of argmax are arranged like the elements of dst. An entry is the number of the tap with the maximum in its
  // window: ky*kernel + kx. It has one byte if windows have at most 255 taps, else four bytes. For a window entirely in
  // the padding, all bits of the entry are set.
  using Max = void (*)(const PoolPlane &, const void *src, void *dst, void *argmax); // argmax may be nullptr
  using MaxDiff = void (*)(const PoolPlane &, const void *diff_dst, const void *argmax, void *diff_src);
  using Avg = void (*)(const PoolPlane &, bool count_padding, const void *from, void *to);
  Max max[2][2];          // [bf16][four bytes]
  MaxDiff max_diff[2][2]; // [bf16][four bytes]
  Avg avg[2], avg_diff[2];
  // sum computes the sums of the channels of a unit over rows [from, to). spread writes one value per channel to these
  // rows.
  void (*sum[2])(const Rows &, int64_t unit, int64_t from, int64_t to, const void *src, double *sums);
  void (*spread[2])(const Rows &, int64_t unit, int64_t from, int64_t to, const float *values, void *dst);
};

struct SimdTable {
  BatchNormTable batch_norm;
  ElementwiseTable elementwise;
  OptimTable optim;
  LossTable loss;
  DropoutTable dropout;
  PoolTable pool;
};

extern const SimdTable simd_generic, simd_avx2, simd_avx512, simd_avx512bf16;

const SimdTable &simd();

} // namespace hetero
