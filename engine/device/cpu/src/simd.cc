// simd.cc: selects the set of vectorised loops.
#include "isa.h"
#include "simd_table.h"

namespace hetero {

const SimdTable &simd() {
#if defined(__x86_64__)
  switch (isa()) {
  case Isa::avx512: return has_avx512bf16() ? simd_avx512bf16 : simd_avx512;
  case Isa::avx2: return simd_avx2;
  case Isa::generic: break;
  }
#endif
  return simd_generic;
}

} // namespace hetero
