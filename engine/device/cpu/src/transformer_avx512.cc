// transformer_avx512.cc: the loops of transformers, compiled for AVX-512 F, BW, DQ and VL.
#include "transformer_simd.h"

namespace hetero {

extern const TransformerTable transformer_avx512;
const TransformerTable transformer_avx512 = transformer_table();

} // namespace hetero
