// pair_product.cc: selects the loops.
#include "pair_product.h"

#include "isa.h"

namespace hetero {

#if defined(__x86_64__)

extern const PairTable pair_table_avx512bf16;

const PairTable *pair_table() { return has_avx512bf16() ? &pair_table_avx512bf16 : nullptr; }

#else

const PairTable *pair_table() { return nullptr; }

#endif

} // namespace hetero
