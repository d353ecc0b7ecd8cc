// tile_product_amx.cc: the loops of tile_product.h.
#include <immintrin.h>

#include "tile_product.h"
#include "transpose_simd.h"
#include "unroll.h"

namespace hetero {

namespace {

// The configuration of palette 1: eight tiles of 16 rows of 64 bytes. It must be constant data, because the compiler
// does not know that the instruction ldtilecfg reads 64 bytes.
struct alignas(64) Configuration {
  unsigned char palette, start_row, reserved[14];
  unsigned short row_bytes[16];
  unsigned char rows[16];
};
const Configuration kConfiguration = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

void begin() {
  const Configuration *c = &kConfiguration;
  __asm__ volatile("" : "+r"(c) : : "memory");
  _tile_loadconfig(c);
}

void end() { _tile_release(); }

constexpr int64_t kRowBytes = 64;

// Tiles 0 to 3 are sums (row tile, column tile), 4 and 5 are left operands, and 6 and 7 are right operands.
template <int RowTiles> void gather(const GatherTiles &t) {
  if (t.bias) {
    _tile_loadd(0, t.bias, 0);
    _tile_loadd(1, t.bias + kTileSide, 0);
    if (RowTiles == 2) {
      _tile_loadd(2, t.bias, 0);
      _tile_loadd(3, t.bias + kTileSide, 0);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (RowTiles == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  const int64_t row = 2 * t.in_row;
  for (const TileTap *tap = t.taps; tap < t.taps + t.num_taps; tap++) {
    const uint16_t *in = t.in + tap->in, *weight = t.weight + tap->weight;
    for (int64_t k = 0; k < t.blocks; k++, in += kTileSum, weight += t.weight_block) {
      _tile_loadd(6, weight, kRowBytes);
      _tile_loadd(4, in, row);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, weight + t.weight_next, kRowBytes);
      _tile_dpbf16ps(1, 4, 7);
      if (RowTiles == 2) {
        _tile_loadd(5, in + kTileSide * t.in_row, row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  alignas(64) float sums[RowTiles][2][kTileSide * kTileSide];
  _tile_stored(0, sums[0][0], kRowBytes);
  _tile_stored(1, sums[0][1], kRowBytes);
  if (RowTiles == 2) {
    _tile_stored(2, sums[RowTiles - 1][0], kRowBytes);
    _tile_stored(3, sums[RowTiles - 1][1], kRowBytes);
  }
  for (int64_t r = t.skip; r < RowTiles * kTileSide; r++) {
    const float *low = sums[r / kTileSide][0] + r % kTileSide * kTileSide;
    const float *high = sums[r / kTileSide][1] + r % kTileSide * kTileSide;
    _mm512_storeu_si512(t.out + r * t.out_row, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(high), _mm512_load_ps(low)));
  }
}

void outer(const OuterTiles &t) {
  if (t.add) {
    _tile_loadd(0, t.out[0][0], kRowBytes);
    _tile_loadd(1, t.out[0][1], kRowBytes);
    _tile_loadd(2, t.out[1][0], kRowBytes);
    _tile_loadd(3, t.out[1][1], kRowBytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (const TileRun *run = t.runs; run < t.runs + t.num_runs; run++) {
    const int64_t a = run->a * t.vectors * kTileElements, b = run->b * t.vectors * kTileElements;
    const uint16_t *a0 = t.a[0] + a, *a1 = t.a[1] + a, *b0 = t.b[0] + b, *b1 = t.b[1] + b;
    for (int64_t k = 0, n = run->pixels * t.vectors * kTileElements; k < n; k += kTileElements) {
      _tile_loadd(4, a0 + k, kRowBytes);
      _tile_loadd(6, b0 + k, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b1 + k, kRowBytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a1 + k, kRowBytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, t.out[0][0], kRowBytes);
  _tile_stored(1, t.out[0][1], kRowBytes);
  _tile_stored(2, t.out[1][0], kRowBytes);
  _tile_stored(3, t.out[1][1], kRowBytes);
}

// --- packing -------------------------------------------------------------------------------------

const uint16_t kLowPairs[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};

struct Pairs {
  __m512i low, high; // pairs of channels 0-15; pairs of channels 16-31
};

// Interleaves the channels of samples i and i + 1.
inline __attribute__((always_inline)) Pairs pairs_of(const uint16_t *src, int64_t stride, int64_t samples, int64_t i) {
  const __m512i first = i < samples ? _mm512_loadu_si512(src + i * stride) : _mm512_setzero_si512();
  const __m512i second = i + 1 < samples ? _mm512_loadu_si512(src + (i + 1) * stride) : _mm512_setzero_si512();
  const __m512i low = _mm512_loadu_si512(kLowPairs), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  return {_mm512_permutex2var_epi16(first, low, second), _mm512_permutex2var_epi16(first, high, second)};
}

void pack_right(const uint16_t *src, int64_t stride, int64_t samples, uint16_t *const dst[2]) {
  for (int64_t i = 0; i < kTileSide; i++) {
    const Pairs p = pairs_of(src, stride, samples, 2 * i);
    _mm512_storeu_si512(dst[0] + i * kTileSum, p.low);
    _mm512_storeu_si512(dst[1] + i * kTileSum, p.high);
  }
}

// Stores the pairs of 16 rows as the rows of a left operand.
inline __attribute__((always_inline)) void store_transposed(__m512i v[16], uint16_t *dst) {
  transpose_16x16(v);
  HT_UNROLL(16)
  for (int c = 0; c < 16; c++) _mm512_storeu_si512(dst + c * kTileSum, v[c]);
}

void pack_left(const uint16_t *src, int64_t stride, int64_t samples, uint16_t *const dst[2]) {
  __m512i low[16], high[16];
  HT_UNROLL(16)
  for (int i = 0; i < 16; i++) {
    const Pairs p = pairs_of(src, stride, samples, 2 * i);
    low[i] = p.low;
    high[i] = p.high;
  }
  store_transposed(low, dst[0]);
  store_transposed(high, dst[1]);
}

} // namespace

extern const TileTable tile_table_amx;
const TileTable tile_table_amx = {begin, end, {gather<1>, gather<2>}, outer, pack_left, pack_right};

} // namespace hetero
