// panel_product.h: matrix products in register tiles, with f32 sums, for AVX-512.
//
// A unit is 32 bits of the summed dimension: one f32, or a pair of adjacent bf16, which the instruction vdpbf16ps
// multiplies with another pair. A tile computes
//
//     out (rows, columns) += a (row, k) · panel (k, column)    k counts units
//
// It reads `a` unit by unit, and broadcasts each unit. Row k of the panel consists of vectors. A panel has kPanel
// columns; columns beyond those of the matrix are zero.
//
// Each sum is one chain of instructions in the order of k. It does not depend on the number of rows of the tile or on
// the number of threads.
#pragma once

#include <stdint.h>

namespace hetero {

constexpr int64_t kPanel = 48;   // columns of a panel: three vectors
constexpr int64_t kTileRows = 8; // rows of a tile; 8 x 3 vectors of sums fill 24 registers

// Returns the number of vectors that contain the given columns of a panel.
inline int vectors(int64_t columns) { return int(((columns < kPanel ? columns : kPanel) + 15) / 16); }

struct PanelTile {
  int64_t units; // number of units in a row of a
  const void *a; // unit (row, k) is at a_row*row + a_step*k, in units
  int64_t a_row, a_step;
  const void *panel; // row k is at panel_row*k, in units
  int64_t panel_row;
  float *out;
  int64_t out_row; // distance between rows of out, elements
  bool add;        // whether to add to the current values of out
};

// The loops for f32 or bf16.
struct PanelTable {
  int64_t elements; // elements of a unit: 1 for f32, 2 for bf16

  void (*tile[kTileRows][3])(const PanelTile &); // [rows - 1][vectors of columns - 1]

  // Forms units of the rows of src (rows, columns <= kPanel). Unit k consists of row k (f32), or of rows 2k and 2k+1
  // (bf16). Column c of unit k goes to dst[c/group*group_stride + k*group + c%group], for all kPanel columns. group is
  // kPanel or kTileRows. Missing rows and columns become zero. If sums is not nullptr, the sums of the columns are
  // added to it.
  void (*interleave)(const void *src, int64_t src_row, int64_t rows, int64_t columns, int64_t group,
                     int64_t group_stride, uint32_t *dst, float *sums);
  // Transposes the units of src (rows <= kPanel, units). Rows of src are src_row units apart. Unit k of row r goes to
  // dst[k*kPanel + r]. Missing rows become zero.
  void (*transpose)(const void *src, int64_t src_row, int64_t rows, int64_t units, uint32_t *dst);
  // Computes dst (rows, columns) = src (rows, kPanel) + bias (columns), in f32 or bf16. bias may be nullptr.
  void (*finish[2])(int64_t rows, int64_t columns, const float *src, const float *bias, void *dst, int64_t dst_row);
};

// Returns the loops for f32, or nullptr if the CPU lacks the instructions. The loops for bf16 are part of pair_table().
const PanelTable *float_panels();

} // namespace hetero
