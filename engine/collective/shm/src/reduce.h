// reduce.h: reduction kernels, one table an instruction set. All compute the same bits: values meet in the order of
// sources, sums of bf16 are accumulated in f32 and rounded once, and nothing is contracted.
#pragma once

#include <cstddef>

namespace hetero {

// dst[i] = src[0][i] op src[1][i] op … for n elements. also, unless nullptr, receives the same. dst and also may be
// one of the sources. Addresses need no alignment beyond the element's.
using ReduceKernel = void (*)(void *dst, void *also, const void *const *src, int sources, size_t n);

constexpr int reduce_types = 6, reduce_functions = 3;

struct ReduceTable {
  ReduceKernel kernel[reduce_types][reduce_functions];
};

// The table of the CPU; nullptr for a type that is not reduced. dtype as in tensor.DType, function as in
// collective.Reduce.
ReduceKernel reduce_kernel(int dtype, int function);

const ReduceTable *reduce_table_generic();
#if defined(__x86_64__)
const ReduceTable *reduce_table_avx2();
const ReduceTable *reduce_table_avx512();
#endif

} // namespace hetero
