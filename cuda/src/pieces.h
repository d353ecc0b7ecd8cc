// pieces.h: sums over rows in two stages. The first stage sums each piece of the rows. The second stage adds the sums
// of the pieces in order, so the result does not depend on the order of execution.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hetero {

constexpr int kColumns = 32; // columns of a block that sums rows: adjacent threads read adjacent elements

// Returns the number of pieces of a sum over rows: at most 64, which fills a GPU, with at least 32 rows in each piece.
inline int64_t pieces_of(int64_t rows) { return std::min<int64_t>(std::max<int64_t>(rows / 32, 1), 64); }

// Computes sums[i], the sum over all pieces p of partial[p, i], for i < n. partial is (pieces, stride).
void add_pieces(int64_t pieces, int64_t stride, int64_t n, const float *partial, float *sums, void *queue);

} // namespace hetero
