// tile_product.h: products of bf16 on the tile registers of AMX, with f32 sums.
//
// A tile has 16 rows of 64 bytes. The instruction tdpbf16ps multiplies two tiles, and adds the result to a third one:
//
//     left tile     16 rows, 32 elements of the summed dimension
//     right tile    16 pairs of the summed dimension, 16 columns, 2 elements
//     sums          16 rows, 16 columns
//
// All loops below use two by two tiles of sums, which are 32 rows and 32 columns. Each loaded tile is then used twice,
// and four independent sums hide the latency.
//
// Each sum is one chain of instructions in a fixed order, so it does not depend on the number of threads.
#pragma once

#include <stdint.h>

namespace hetero {

constexpr int64_t kTileSide = 16;      // rows of a tile, and columns of a tile of sums
constexpr int64_t kTileSum = 32;       // elements of the summed dimension in a tile
constexpr int64_t kTileElements = 512; // bf16 elements of a tile: 1 KiB
constexpr int64_t kPair = 32;          // rows or columns of two tiles

// A tap: the place from which rows of the input are read, and the weights by which they are multiplied.
struct TileTap {
  int64_t in, weight; // distances from GatherTiles.in and .weight, elements
};

// Computes 16·row_tiles rows and 32 columns:
//
//     out = bias + sum over taps and blocks of in · weight
struct GatherTiles {
  const uint16_t *in; // first row
  int64_t in_row;     // elements from one row to the next
  int64_t blocks;     // number of blocks of 32 elements, contiguous in each row
  const TileTap *taps;
  int64_t num_taps;
  const uint16_t *weight;            // right tiles of the first 16 columns
  int64_t weight_next, weight_block; // elements to the next 16 columns, to the next block
  const float *bias;                 // 32 elements, or nullptr
  uint16_t *out;                     // first row
  int64_t out_row;
  int64_t skip; // number of first rows whose results are not stored
};

// A sequence of pixels that are contiguous in both packed images.
struct TileRun {
  int32_t a, b, pixels;
};

// Computes 16 rows and 16 columns for each i and j, or adds them to out:
//
//     out[i][j] = sum over the pixels of all runs of a[i] · b[j]
//
// Each pixel has `vectors` consecutive tiles.
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
  // Pack 32 channels of up to 32 samples, which are `stride` elements apart. The results for channels 0-15 go to
  // dst[0], and those for channels 16-31 go to dst[1]. Missing samples become zero.
  void (*pack_left)(const uint16_t *src, int64_t stride, int64_t samples, uint16_t *const dst[2]);  // rows: channels
  void (*pack_right)(const uint16_t *src, int64_t stride, int64_t samples, uint16_t *const dst[2]); // columns: channels
};

// Returns the loops for this CPU, or nullptr if it has no tiles for bf16.
const TileTable *tile_table();

} // namespace hetero
