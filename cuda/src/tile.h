// tile.h: products of a warp on tensor cores (mma.m16n8k16, compute capability 8.0), and asynchronous copies.
//
//     D += A·B        A (16, 16) and B (16, 8) of bf16 or f16; D (16, 8) of f32
//
// The registers of a warp's lanes contain A, B and D. With g = lane / 4 and t = lane % 4, a lane has these elements:
//
//     A  word 0: row g, columns 2t and 2t+1; word 1: row g+8; words 2 and 3: the same rows, columns 2t+8 and 2t+9
//     D  elements 0 and 1: row g, columns 2t and 2t+1; elements 2 and 3: row g+8
//
// Two adjacent matrices D, rounded, therefore form a matrix A without any exchange between lanes (as_a).
//
// Operands are loaded from tiles in shared memory. `stride` is the number of elements from one row of a tile to the
// next. If stride / 8 is odd, the eight rows of a load start in different banks.
#pragma once

#include "gpu.h"
#ifndef __CUDACC__
#include <tensor_core.h>
#endif

namespace hetero {

constexpr int kTensorArch = 80; // compute capability times ten

#ifdef __CUDACC__
// A GPU without these instructions never launches the kernels that contain them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define HETERO_TENSOR(...) __trap()
#else
#define HETERO_TENSOR(...) __VA_ARGS__
#endif

__device__ inline unsigned shared_address(const void *p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ inline void multiply(bf16, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  HETERO_TENSOR(asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                    "{%0,%1,%2,%3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}
__device__ inline void multiply(f16, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  HETERO_TENSOR(asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                    "{%0,%1,%2,%3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}
// Load four (8, 8) matrices. Lane 8·i + r passes the address of row r of matrix i.
__device__ inline void load_matrices(uint32_t (&r)[4], const void *row) {
  HETERO_TENSOR(asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                             : "r"(shared_address(row))
                             : "memory"));
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void *row) {
  HETERO_TENSOR(asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                             : "r"(shared_address(row))
                             : "memory"));
}
// Begin to copy 16 or 4 bytes to shared memory. If `real` is false, they write zeros; `from` must be readable in any
// case.
__device__ inline void copy16(void *to, const void *from, bool real) {
  HETERO_TENSOR(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                             "r"(real ? 16 : 0)
                             : "memory"));
}
__device__ inline void copy4(void *to, const void *from, bool real) {
  HETERO_TENSOR(asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                             "r"(real ? 4 : 0)
                             : "memory"));
}
// Ends a group of copies of this thread.
__device__ inline void end_copies() { HETERO_TENSOR(asm volatile("cp.async.commit_group;" ::: "memory")); }
// Waits until at most N groups of this thread are pending.
template <int N> __device__ void await_copies() {
  HETERO_TENSOR(asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"));
}
// Returns two values in one word, rounded to the nearest. x is in the low half.
__device__ inline uint32_t pack(bf16, float x, float y) {
  uint32_t bits = 0;
  HETERO_TENSOR(asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x)));
  return bits;
}
__device__ inline uint32_t pack(f16, float x, float y) {
  uint32_t bits = 0;
  HETERO_TENSOR(asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x)));
  return bits;
}
// 2^x, with a relative error of 2^-22; results below 2^-126 are zero.
__device__ inline float fast_exp2(float x) {
  float power = 0;
  HETERO_TENSOR(asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x)));
  return power;
}
#undef HETERO_TENSOR
#else
template <class T> void multiply(T, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  shim::mma_m16n8k16<T>(d, a, b0, b1);
}
inline void load_matrices(uint32_t (&r)[4], const void *row) { shim::ldmatrix_x4<false>(r, row); }
inline void load_matrices_transposed(uint32_t (&r)[4], const void *row) { shim::ldmatrix_x4<true>(r, row); }
inline void copy16(void *to, const void *from, bool real) { shim::copy_later(to, from, 16, real ? 16 : 0); }
inline void copy4(void *to, const void *from, bool real) { shim::copy_later(to, from, 4, real ? 4 : 0); }
inline void end_copies() { shim::end_copy_group(); }
template <int N> void await_copies() { shim::await_copies(N); }
template <class T> uint32_t pack(T, float x, float y) {
  T v[2];
  store(&v[0], x);
  store(&v[1], y);
  uint32_t bits;
  std::memcpy(&bits, v, sizeof bits);
  return bits;
}
inline float fast_exp2(float x) { return exp2f(x); }
#endif

__device__ inline int lane_row() { return static_cast<int>(threadIdx.x) % 32 / 4; }   // g
__device__ inline int lane_column() { return static_cast<int>(threadIdx.x) % 4 * 2; } // 2t

// Loads a matrix A. Its rows are rows `row` to row + 15 of the tile, and its columns are columns `k` to k + 15.
template <class T> __device__ void load_a(uint32_t (&a)[4], const T *tile, int stride, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices(a, tile + (row + lane % 16) * stride + k + lane / 16 * 8);
}

// Loads two matrices B: words 0 and 1 are the first one, words 2 and 3 the second one. Their columns are rows `n` to n
// + 15 of the tile, and their rows are columns `k` to k + 15. A product with them is a product with the transposed
// tile.
template <class T> __device__ void load_b_of_rows(uint32_t (&b)[4], const T *tile, int stride, int n, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices(b, tile + (n + lane / 16 * 8 + lane % 8) * stride + k + lane / 8 % 2 * 8);
}

// Loads two matrices B: words 0 and 1 are the first one, words 2 and 3 the second one. Their rows are rows `k` to k +
// 15 of the tile, and their columns are columns `n` to n + 15.
template <class T> __device__ void load_b(uint32_t (&b)[4], const T *tile, int stride, int k, int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices_transposed(b, tile + (k + lane % 16) * stride + n + lane / 16 * 8);
}

// Adds the products of A with two adjacent matrices B to `left` and `right`.
template <class T>
__device__ void multiply_pair(float (&left)[4], float (&right)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  multiply(T{}, left, a, b[0], b[1]);
  multiply(T{}, right, a, b[2], b[3]);
}

// Rounds two adjacent matrices D to a matrix A.
template <class T> __device__ void as_a(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pack(T{}, left[0], left[1]);
  a[1] = pack(T{}, left[2], left[3]);
  a[2] = pack(T{}, right[0], right[1]);
  a[3] = pack(T{}, right[2], right[3]);
}

// Return the maximum, and the sum, over the four lanes of a row of D.
__device__ inline float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ inline float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

} // namespace hetero
