// pair_product.cc: selects the loops of pair_product.h and panel_product.h.
#include "pair_product.h"

#include "isa.h"

namespace hetero {

#if defined(__x86_64__)

extern const PairTable pair_table_avx512bf16;
extern const PanelTable float_panels_avx512;

const PairTable *pair_table() { return has_avx512bf16() ? &pair_table_avx512bf16 : nullptr; }
const PanelTable *float_panels() { return isa() == Isa::avx512 ? &float_panels_avx512 : nullptr; }

#else

const PairTable *pair_table() { return nullptr; }
const PanelTable *float_panels() { return nullptr; }

#endif

} // namespace hetero
