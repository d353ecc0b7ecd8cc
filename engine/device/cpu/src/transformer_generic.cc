// transformer_generic.cc: the loops of transformers, compiled for the instructions that every CPU has.
#include "transformer_simd.h"

namespace hetero {

extern const TransformerTable transformer_generic;
const TransformerTable transformer_generic = transformer_table();

} // namespace hetero
