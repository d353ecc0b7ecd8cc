// product.h: matrix products through cuBLASLt.
//
// The library is column-major, and so are the shapes in this file: a row-major (r, c) matrix is called (c, r).
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace hetero {

// A matrix product:
//
//     D = op(A) · op(B)        D (m, n), op(A) (m, k), op(B) (k, n); op: the identity or the transpose
//
// Sums are f32. f32 factors are not rounded to TF32.
struct ProductShape {
  enum Epilogue {
    none,
    bias,     // adds bias (m), of D's type, to each column of D
    sums_of_b // also computes bias (n), of D's type: the sums of op(B) over k
  };
  int64_t m, n, k;
  int32_t factors, result; // ht_dtype: of A and B; of D
  bool transpose_a, transpose_b;
  Epilogue epilogue = none;
  int64_t b_stride = 0; // elements from one column of B in memory to the next; 0: columns without gaps
  bool add = false;     // D + the product, instead of the product alone

  int64_t b_rows() const { return transpose_b ? n : k; } // of B in memory
  int64_t b_columns() const { return transpose_b ? k : n; }
  // Elements from the first to the last element of B in memory.
  int64_t b_extent() const { return b_stride ? (b_columns() - 1) * b_stride + b_rows() : k * n; }

  std::string text() const; // all fields as text, for the key of cached choices
};

// One way to compute a product.
struct Algorithm {
  std::string name;             // the same in every process with this version of the library
  int64_t workspace;            // bytes
  std::array<uint64_t, 8> data; // used by the library only
};

struct ProductOperands {
  const void *a, *b;
  void *d, *bias;  // the epilogue determines whether the library reads or writes bias
  void *workspace; // address at a multiple of kProductAlign
};

constexpr int64_t kProductAlign = 256;

const char *type_name(int32_t dtype); // "f32", "bf16" or "f16"

std::string products_by(); // the library, with its version

// Returns the library's algorithms for operands with this alignment in bytes, best guess first. The list is empty if
// there is none. Results of one algorithm are bit-equal in every run.
std::vector<Algorithm> algorithms_for(const ProductShape &shape, int align);

void run_product(const ProductShape &shape, const Algorithm &algorithm, const ProductOperands &x, cudaStream_t stream);

} // namespace hetero
