// transformer.cc: selects the set of loops of transformers.
#include "isa.h"
#include "transformer_table.h"

namespace hetero {

const TransformerTable &transformer() {
#if defined(__x86_64__)
  switch (isa()) {
  case Isa::avx512: return transformer_avx512;
  case Isa::avx2: return transformer_avx2;
  case Isa::generic: break;
  }
#endif
  return transformer_generic;
}

} // namespace hetero
