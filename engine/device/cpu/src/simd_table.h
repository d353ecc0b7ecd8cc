// simd_table.h: every vectorised loop of the library, compiled once per instruction set; simd() returns the set in use.
//
// Each works in one thread on a piece of a tensor; the .cc file of each op divides the work. Index bf16 is 0 for f32
// tensors, 1 for bf16; arithmetic is f32. Operands need no alignment, and results may replace operands in place.
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
  Binary unary_diff[2][HT_ABS + 1]; // a: diff_dst, b: src
  Binary binary[2][HT_MIN + 1][2];  // [bf16][ht_binary_func][b is one element, broadcast]
  Scale scale[2];
};

// Factors of an optimizer step for one segment, named as in op_optim.go; decay and rate include lr and the segment's
// factors.
struct OptimFactors {
  float scale, decay, rate;
  float momentum;                               // SGD
  float beta1, rest1, beta2, rest2, root2, eps; // AdamW: rest = 1 - beta, root2 = sqrt(1 - beta2^t)
};

// Optimizers on n elements of the flat buffers: separate roundings in the order of op_optim.go, equal bits everywhere.
struct OptimTable {
  double (*sum_squares)(int64_t n, const float *x);
  void (*sgd[2][2])(int64_t n, const OptimFactors &, float *value, const float *grad,
                    float *moment); // [moment][nesterov]
  void (*adamw)(int64_t n, const OptimFactors &, float *value, const float *grad, float *m, float *v);
};

// A sample's logits x[0..classes).
struct LossTable {
  // largest = max(x), sum_exp = sum exp(x - largest), sum = sum (x - largest); higher = number of classes that score
  // above class label, plus earlier classes with an equal score (0 if label < 0).
  struct Row {
    float largest;
    double sum_exp, sum;
    int64_t higher;
  };
  Row (*row[2])(int64_t classes, const void *x, int64_t label);
  // The labels of a sample. hot and second_hot are the parts of q above base: q at the label is base + hot.
  struct Target {
    int64_t label, second; // second = label: one label
    float hot, second_hot, base;
  };
  // diff = (exp(x - lse) - q)·scale
  void (*diff[2])(int64_t classes, const void *x, const Target &target, float lse, float scale, void *diff);
};

// Dropout of n elements at positions from, from + 1 … of a sample; from is a multiple of 64.
struct DropoutSample {
  uint64_t id;
  uint32_t key[2], stream;
  uint64_t threshold; // words below it drop their element
  float factor;
};

struct DropoutTable {
  void (*apply[2])(const DropoutSample &, int64_t from, int64_t n, const void *src, void *dst);
  // One byte per position: 1 if the element is kept. Writes up to a multiple of 64 bytes.
  void (*keep)(const DropoutSample &, int64_t from, int64_t n, uint8_t *keep);
};

// Tables for one dimension of a pooling. Taps [first[o], last[o]) of window o are inside the input, the others in the
// padding. Tap k of window o is element o*stride - padding + k*dilation. Element i is under (window[j], tap[j]) for j
// in [begin[i], begin[i+1]), windows ascending.
struct PoolAxis {
  int32_t in, out, kernel, stride, padding, dilation;
  const int32_t *first, *last;
  const int32_t *begin, *window, *tap;
};

// One plane of a pooling: up to 16 channels of an image; pixels of src and dst are step elements apart.
struct PoolPlane {
  PoolAxis y, x;
  int64_t step;
  int lanes;
};

struct PoolTable {
  // Argmax entries have the arrangement of dst's elements: the winning tap's number in its window, ky*kernel + kx; one
  // byte for windows of at most 255 taps, else four. A window entirely in the padding has none (all bits set).
  using Max = void (*)(const PoolPlane &, const void *src, void *dst, void *argmax); // argmax may be null
  using MaxDiff = void (*)(const PoolPlane &, const void *diff_dst, const void *argmax, void *diff_src);
  using Avg = void (*)(const PoolPlane &, bool count_padding, const void *from, void *to);
  Max max[2][2];          // [bf16][four bytes]
  MaxDiff max_diff[2][2]; // [bf16][four bytes]
  Avg avg[2], avg_diff[2];
  // Sums of the channels of a unit over rows [from, to), and a broadcast of one value to these rows.
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
