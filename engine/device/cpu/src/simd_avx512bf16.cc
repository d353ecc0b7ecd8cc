// simd_avx512bf16.cc: the vectorised loops, compiled for AVX-512 with its bf16 instructions.
#include "simd_tables.h"

namespace hetero {

extern const SimdTable simd_avx512bf16;
const SimdTable simd_avx512bf16 = simd_table();

} // namespace hetero
