// tile_product.h: products of bf16 on the tile registers of AMX, with f32 sums.
//
// A tile has 16 rows of 64 bytes. The instruction tdpbf16ps multiplies a left tile (16 rows, 32 elements of the summed
// dimension) with a right tile (16 pairs of the summed dimension, 16 columns, 2 elements), and adds the result to a
// tile of sums (16 rows, 16 columns). All loops below keep two by two tiles of sums, which are 32 rows and 32 columns.
// Each loaded tile is used twice, and four independent sums hide the latency.
//
// Each sum is one chain of instructions in a fixed order, so it does not depend on the number of threads.
#pragma once

#include <stdint.h>

namespace hetero {

constexpr int64_t kTileSide = 16;      // rows of a tile, and columns of a tile of sums
constexpr int64_t kTileSum = 32;       // elements of the summed dimension in a tile
constexpr int64_t kTileElements = 512; // bf16 elements of a tile: 1 KiB
constexpr int64_t kPair = 32;          // rows or columns of two tiles

// One place from which rows are read, and the weights with which they are multiplied.
struct TileTap {
  int64_t in, weight; // distances from GatherTiles.in and .weight, elements
};

// Computes out (16·row_tiles rows, 32 columns) = bias + sum over taps and blocks of in · weight.
struct GatherTiles {
  const uint16_t *in; // first row
  int64_t in_row;     // distance between rows, elements
  int64_t blocks;     // number of blocks of 32 elements, contiguous in each row
  const TileTap *taps;
  int64_t num_taps;
  const uint16_t *weight;            // right tiles of the first 16 columns
  int64_t weight_next, weight_block; // distances to the next 16 columns, and to the next block; elements
  const float *bias;                 // 32 elements, or nullptr
  uint16_t *out;                     // first row
  int64_t out_row;
  int64_t skip; // number of first rows whose results are not stored
};

// A sequence of pixels that are contiguous in both packed images.
struct TileRun {
  int32_t a, b, pixels;
};

// Computes out[i][j] (16 rows, 16 columns) = sum over runs of a[i] · b[j], or adds to the values of out. Each pixel has
// `vectors` tiles in a row.
struct OuterTiles {
  const uint16_t *a[2], *b[2];
  const TileRun *runs;
  int64_t num_runs, vectors;
  float *out[2][2];
  bool add;
};

struct TileTable {
  void (*begin)();                        // configures the tiles of the calling thread; call it before those below
  void (*end)();                          // returns the tiles to their initial state
  void (*gather[2])(const GatherTiles &); // [row_tiles - 1]
  void (*outer)(const OuterTiles &);
  // Pack 32 channels of up to 32 samples. The distance between samples is `stride` elements. The results for channels
  // 0-15 go to dst[0], those for channels 16-31 to dst[1]. Missing samples are zero.
  void (*pack_left)(const uint16_t *src, int64_t stride, int64_t samples, uint16_t *const dst[2]);  // rows: channels
  void (*pack_right)(const uint16_t *src, int64_t stride, int64_t samples, uint16_t *const dst[2]); // columns: channels
};

// Returns the loops for this CPU, or nullptr if it has no tiles for bf16.
const TileTable *tile_table();

} // namespace hetero
