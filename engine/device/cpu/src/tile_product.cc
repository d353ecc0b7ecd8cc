// tile_product.cc: selects the loops of tile_product.h.
#include "tile_product.h"

#include "isa.h"

namespace hetero {

#if HT_HAVE_AMX

extern const TileTable tile_table_amx;

const TileTable *tile_table() { return has_amx_bf16() ? &tile_table_amx : nullptr; }

#else

const TileTable *tile_table() { return nullptr; }

#endif

} // namespace hetero
