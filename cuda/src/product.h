// product.h: matrix products through cuBLASLt.
//
// The library is column-major. Shapes in this file are therefore column-major too: a row-major (r, c) matrix is called
// (c, r).
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace hetero {

// D (m, n) = op(A) (m, k) · op(B) (k, n), where op is the identity or the transpose; sums are f32, f32 factors are not
// rounded.
struct ProductShape {
  enum Epilogue {
    none,
    bias,     // + bias (m), of D's type
    sums_of_b // bias (n), of D's type: the sums over k of op(B)
  };
  int64_t m, n, k;
  int32_t factors, result; // ht_dtype of A and B, of D
  bool transpose_a, transpose_b;
  Epilogue epilogue = none;
  int64_t b_stride = 0; // elements from one column of B in memory to the next; 0: columns without gaps
  bool add = false;     // D + the product, instead of the product alone

  int64_t b_rows() const { return transpose_b ? n : k; } // of B in memory
  int64_t b_columns() const { return transpose_b ? k : n; }
  // Elements from the first to the last element of B in memory.
  int64_t b_extent() const { return b_stride ? (b_columns() - 1) * b_stride + b_rows() : k * n; }

  std::string text() const; // all of it: the key of cached choices
};

// One way to compute a product.
struct Algorithm {
  std::string name;             // the same in every process with this version of the library
  int64_t workspace;            // bytes
  std::array<uint64_t, 8> data; // used by the library only
};

struct ProductOperands {
  const void *a, *b;
  void *d, *bias;  // the epilogue determines whether bias is read or written
  void *workspace; // address at a multiple of kProductAlign
};

constexpr int64_t kProductAlign = 256;

const char *type_name(int32_t dtype); // "f32", "bf16" or "f16"

std::string products_by(); // the library, with its version

// The library's algorithms for operands with this alignment in bytes, best guess first; empty if there is none. Results
// of one algorithm are bit-equal in every run.
std::vector<Algorithm> algorithms_for(const ProductShape &shape, int align);

void run_product(const ProductShape &shape, const Algorithm &algorithm, const ProductOperands &x, cudaStream_t stream);

} // namespace hetero
