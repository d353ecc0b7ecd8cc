// transformer_avx2.cc: the loops of transformers, compiled for AVX2, FMA and F16C.
#include "transformer_simd.h"

namespace hetero {

extern const TransformerTable transformer_avx2;
const TransformerTable transformer_avx2 = transformer_table();

} // namespace hetero
