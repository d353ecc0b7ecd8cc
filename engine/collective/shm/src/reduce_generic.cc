// reduce_generic.cc: the kernels of reduce_simd.h for the instruction set in the file's name.
#include "reduce_simd.h"

namespace hetero {

const ReduceTable *reduce_table_generic() { return &table; }

} // namespace hetero
