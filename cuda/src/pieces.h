// pieces.h: sums over rows in two stages. First each piece of the rows is summed. Then the sums of the pieces are added
// in order, so the result depends only on the operands, not on the order of execution.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hetero {

constexpr int kColumns = 32; // columns of a block that sums rows: adjacent threads read adjacent elements

// Number of pieces of a sum over rows: enough to fill a GPU, and at least 32 rows in each.
inline int64_t pieces_of(int64_t rows) { return std::min<int64_t>(std::max<int64_t>(rows / 32, 1), 64); }

// sums (n) = the sum over pieces of partial (pieces, stride), of which it reads the first n columns.
void add_pieces(int64_t pieces, int64_t stride, int64_t n, const float *partial, float *sums, void *queue);

} // namespace hetero
