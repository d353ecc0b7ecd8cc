// reduce.h: reduction kernels, one table per instruction set. All tables compute the same bits:
//
//   - Values are combined in the order of sources.
//   - Sums of bf16 are accumulated in f32, and rounded once.
//   - The compiler contracts no operations.
#pragma once

#include <cstddef>

namespace hetero {

// A kernel computes, for n elements:
//
//     dst[i] = src[0][i] op src[1][i] op …
//
// `also` is a second destination for the same values, or nullptr. Each destination may be one of the sources. Addresses
// need only the alignment of an element.
using ReduceKernel = void (*)(void *dst, void *also, const void *const *src, int sources, size_t n);

constexpr int reduce_types = 6, reduce_functions = 3;

struct ReduceTable {
  ReduceKernel kernel[reduce_types][reduce_functions];
};

// Returns the kernel for the CPU, or nullptr for a type that cannot be reduced. The values of dtype are those of
// tensor.DType, and the values of function those of collective.Reduce.
ReduceKernel reduce_kernel(int dtype, int function);

const ReduceTable *reduce_table_generic();
#if defined(__x86_64__)
const ReduceTable *reduce_table_avx2();
const ReduceTable *reduce_table_avx512();
#endif

} // namespace hetero
