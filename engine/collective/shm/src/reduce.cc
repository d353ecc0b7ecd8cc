// reduce.cc: selects the kernel table for the CPU.
#include "reduce.h"

#include "isa.h"

namespace hetero {

namespace {

// The types that have a row in a table. Their numbers are those of tensor.DType.
enum DType { f32 = 1, f64 = 2, bf16 = 3, i64 = 5, i32 = 6, u8 = 8 };

const ReduceTable *choose() {
#if defined(__x86_64__)
  if (isa() == Isa::avx512) return reduce_table_avx512();
  if (isa() == Isa::avx2) return reduce_table_avx2();
#endif
  return reduce_table_generic();
}

int row(int dtype) {
  switch (dtype) {
  case f32: return 0;
  case f64: return 1;
  case bf16: return 2;
  case i64: return 3;
  case i32: return 4;
  case u8: return 5;
  }
  return -1;
}

} // namespace

ReduceKernel reduce_kernel(int dtype, int function) {
  static const ReduceTable *table = choose();
  if (row(dtype) < 0 || function < 0 || function >= reduce_functions) return nullptr;
  return table->kernel[row(dtype)][function];
}

} // namespace hetero
