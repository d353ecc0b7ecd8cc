// simd_avx512.cc: the vectorised loops, compiled for AVX-512 F, BW, DQ and VL.
#include "simd_tables.h"

namespace hetero {

extern const SimdTable simd_avx512;
const SimdTable simd_avx512 = simd_table();

} // namespace hetero
