// reduce_avx512.cc: the kernels of reduce_simd.h for the instruction set in the file's name.
#include "reduce_simd.h"

namespace hetero {

const ReduceTable *reduce_table_avx512() { return &table; }

} // namespace hetero
