// peak_amx.cc: inner loop of the bf16 peak measurement on a CPU with tile registers.
#include <immintrin.h>
#include <string.h>

#include "peak.h"

namespace hetero {

namespace {

struct alignas(64) Tiles {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {};
  unsigned char rows[16] = {};
};

} // namespace

// Multiplies each of two left operands by each of two right operands, as in a matrix product. Each of the four products
// adds to its own tile of sums. These four chains hide the latency of a product (52 cycles), because a product starts
// every 16 cycles.
int64_t amx_bf16_peak(int64_t turns, void *sink) {
  Tiles tiles;
  for (int i = 0; i < 8; i++) {
    tiles.rows[i] = 16;
    tiles.row_bytes[i] = 64;
  }
  alignas(64) unsigned short operand[512];
  for (int i = 0; i < 512; i++) operand[i] = 0x3a83; // 1e-3 in bf16
  // The compiler does not know that the instructions below read both objects.
  __asm__ volatile("" : : "r"(&tiles), "r"(operand) : "memory");
  _tile_loadconfig(&tiles);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, operand, 64);
  _tile_loadd(5, operand, 64);
  _tile_loadd(6, operand, 64);
  _tile_loadd(7, operand, 64);
  for (int64_t t = 0; t < turns; t++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float sums[4][256];
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
  _tile_release();
  for (int i = 0; i < 16; i++) sums[0][i] += sums[1][i] + sums[2][i] + sums[3][i];
  memcpy(sink, sums[0], 64);
  return turns * 4 * 16 * 16 * 32 * 2;
}

} // namespace hetero
