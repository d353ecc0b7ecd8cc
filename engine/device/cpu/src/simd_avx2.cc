// simd_avx2.cc: the vectorised loops, compiled for AVX2.
#include "simd_tables.h"

namespace hetero {

extern const SimdTable simd_avx2;
const SimdTable simd_avx2 = simd_table();

} // namespace hetero
