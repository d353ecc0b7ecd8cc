// simd_table.h: every vectorised loop of the library, compiled once an instruction set; simd() is the set in use.
#pragma once

#include "batchnorm_table.h"

namespace hetero {

struct SimdTable {
  BatchNormTable batch_norm;
};

extern const SimdTable simd_generic, simd_avx2, simd_avx512;

const SimdTable &simd();

} // namespace hetero
