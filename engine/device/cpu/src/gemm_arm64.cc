// gemm_arm64.cc: the kernel of f32 tiles, and the loops over tasks, blocks and tiles.
#include "gemm_arm64.h"

#include <arm_neon.h>

#include <algorithm>
#include <cstring>

#include "layout.h"
#include "unroll.h"

namespace hetero {

void tile_f32(int64_t k, const void *a_, const void *b_, float *c, int64_t c_row, Start start) {
  const auto *a = static_cast<const float *>(a_), *b = static_cast<const float *>(b_);
  float32x4_t s[kTileRows][3];
  HT_UNROLL(8)
  for (int r = 0; r < kTileRows; r++) {
    HT_UNROLL(3)
    for (int j = 0; j < 3; j++) s[r][j] = start == Start::continued ? vld1q_f32(c + r * c_row + 4 * j) : vdupq_n_f32(0);
  }
  for (; k > 0; k--, a += kTileRows, b += kTileColumns) {
    const float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4), b2 = vld1q_f32(b + 8);
    const float32x4_t low = vld1q_f32(a), high = vld1q_f32(a + 4);
#define TILE_ROW(r, from, lane)                                                                                        \
  s[r][0] = vfmaq_laneq_f32(s[r][0], b0, from, lane);                                                                  \
  s[r][1] = vfmaq_laneq_f32(s[r][1], b1, from, lane);                                                                  \
  s[r][2] = vfmaq_laneq_f32(s[r][2], b2, from, lane);
    TILE_ROW(0, low, 0)
    TILE_ROW(1, low, 1)
    TILE_ROW(2, low, 2)
    TILE_ROW(3, low, 3)
    TILE_ROW(4, high, 0)
    TILE_ROW(5, high, 1)
    TILE_ROW(6, high, 2)
    TILE_ROW(7, high, 3)
#undef TILE_ROW
  }
  HT_UNROLL(8)
  for (int r = 0; r < kTileRows; r++) {
    HT_UNROLL(3)
    for (int j = 0; j < 3; j++) {
      float *to = c + r * c_row + 4 * j;
      vst1q_f32(to, start == Start::added ? vaddq_f32(vld1q_f32(to), s[r][j]) : s[r][j]);
    }
  }
}

// Divides n into equal blocks, and returns their size: a multiple of `unit`, and at most about `most`.
static int64_t block_of(int64_t n, int64_t most, int64_t unit) {
  const int64_t blocks = std::max<int64_t>(1, (n + most - 1) / most);
  return up(std::max<int64_t>(1, (n + blocks - 1) / blocks), unit);
}

Gemm::Gemm(int64_t batch, int64_t m, int64_t n, int64_t k, bool bf16, int threads, bool split, int64_t own_scratch)
    : batch_(batch), m_(m), n_(n), k_(k), threads_(threads), bf16_(bf16), split_(split),
      rows_(block_of(m, kBlockRows, kTileRows)) {
  row_blocks_ = (m + rows_ - 1) / rows_;
  // A block has fewer columns than kBlockColumns if there would otherwise be too few blocks for the threads. It has
  // enough columns that packing the operand a takes little time in comparison.
  const int64_t wanted = (2 * threads_ + batch * row_blocks_ - 1) / (batch * row_blocks_);
  columns_ = block_of(n, std::clamp<int64_t>(n / wanted, 4 * kTileColumns, kBlockColumns), kTileColumns);
  column_blocks_ = (n + columns_ - 1) / columns_;
  if (split) {
    const int64_t tasks = batch * row_blocks_ * column_blocks_;
    // A part has at least four blocks of k, so that adding the parts takes little time.
    splits_ = std::clamp<int64_t>((threads_ + tasks - 1) / std::max<int64_t>(tasks, 1), 1,
                                  std::max<int64_t>(1, k / (4 * kDepth)));
  }
  const int64_t size = bf16 ? 2 : 4, depth = std::min(kDepth, up(k, 4));
  a_bytes_ = up(rows_ * depth * size, 64);
  b_bytes_ = up(columns_ * depth * size, 64);
  sums_row_ = columns_;
  scratch_ = a_bytes_ + b_bytes_ + up(rows_ * sums_row_ * 4, 64) + up(own_scratch, 64);
}

void Gemm::run(const GemmOperands &operands, void *workspace) const {
  const int64_t tasks = batch_ * row_blocks_ * column_blocks_ * splits_;
  char *memory = static_cast<char *>(workspace);
  auto *parts = reinterpret_cast<float *>(memory + threads_ * scratch_);
#pragma omp parallel for schedule(static)
  for (int64_t thread = 0; thread < threads_; thread++)
    for (int64_t t = thread; t < tasks; t += threads_) task(operands, t, memory + thread * scratch_, parts);
  if (splits_ > 1) merge(operands, parts);
}

void Gemm::task(const GemmOperands &operands, int64_t number, char *scratch, float *parts) const {
  const int64_t row = number % row_blocks_ * rows_, rows = std::min(rows_, m_ - row);
  number /= row_blocks_;
  const int64_t column = number % column_blocks_ * columns_, columns = std::min(columns_, n_ - column);
  number /= column_blocks_;
  const int64_t part = number % splits_, batch = number / splits_;
  const int64_t blocks = (k_ + kDepth - 1) / kDepth;
  const int64_t from = blocks * part / splits_ * kDepth, to = std::min(k_, blocks * (part + 1) / splits_ * kDepth);
  char *a = scratch, *b = a + a_bytes_, *own = b + b_bytes_ + up(rows_ * sums_row_ * 4, 64);
  auto *sums = reinterpret_cast<float *>(b + b_bytes_);
  const Tile tile = bf16_ ? tile_bf16 : tile_f32;
  const int64_t size = bf16_ ? 2 : 4;
  if (from == to) std::memset(sums, 0, size_t(rows_ * sums_row_ * 4));
  for (int64_t k = from; k < to; k += kDepth) {
    const int64_t depth = std::min(kDepth, to - k), packed = bf16_ ? up(depth, 4) : depth;
    const Start start = k == from ? Start::zero : split_ ? Start::added : Start::continued;
    operands.pack_b(batch, column, columns, k, depth, b, own);
    operands.pack_a(batch, row, rows, k, depth, a);
    for (int64_t j = 0; j < columns; j += kTileColumns)
      for (int64_t i = 0; i < rows; i += kTileRows)
        tile(packed, a + i * packed * size, b + j * packed * size, sums + i * sums_row_ + j, sums_row_, start);
  }
  if (splits_ == 1) return operands.store(batch, row, rows, column, columns, sums, sums_row_);
  for (int64_t i = 0; i < rows; i++)
    std::memcpy(parts + ((part * batch_ + batch) * m_ + row + i) * n_ + column, sums + i * sums_row_,
                size_t(columns) * 4);
}

// Adds the parts of each sum, in order.
void Gemm::merge(const GemmOperands &operands, float *parts) const {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < batch_ * m_; i++) {
    float *sums = parts + i * n_;
    for (int64_t part = 1; part < splits_; part++) {
      const float *more = parts + (part * batch_ * m_ + i) * n_;
      for (int64_t j = 0; j < n_; j++) sums[j] += more[j];
    }
    operands.store(i / m_, i % m_, 1, 0, n_, sums, n_);
  }
}

} // namespace hetero
