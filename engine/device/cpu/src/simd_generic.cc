// simd_generic.cc: the vectorised loops, compiled for the instructions that every CPU has.
#include "simd_tables.h"

namespace hetero {

extern const SimdTable simd_generic;
const SimdTable simd_generic = simd_table();

} // namespace hetero
