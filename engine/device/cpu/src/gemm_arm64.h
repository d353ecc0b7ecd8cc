// gemm_arm64.h: matrix products in register tiles of NEON, for convolutions and linear layers.
//
//     c (m, n) = a (m, k) · b (k, n)      for each product of a batch
//
// For a grouped convolution, a batch has one product per group.
//
// A task computes a block of c, in one thread. For every kDepth values of k, it packs its rows of `a` and its columns
// of b into panels. Tiles then read both in sequence. The sums of a task stay in its scratch memory until
// GemmOperands::store stores them.
//
// A panel of `a` has kTileRows rows, and a panel of b has kTileColumns columns (W). Panels contain f32, or bf16 if the
// CPU has bfmmla. The element (k, i) of a panel is at this index:
//
//     f32    k*W + i
//     bf16   (k/4*W + i)*4 + k%4, because bfmmla multiplies two rows by two columns of four values
#pragma once

#include <cstdint>

namespace hetero {

constexpr int64_t kTileRows = 8;     // rows of a tile
constexpr int64_t kTileColumns = 12; // columns of a tile; 8 x 12 sums fill 24 of the 32 registers
constexpr int64_t kDepth = 256;      // values of k in a block; a panel of b then fills 12 KiB of the first-level cache
constexpr int64_t kBlockRows = 192; // a block of a has 192 KiB, and one of b 240 KiB, for a second-level cache of 1 MiB
constexpr int64_t kBlockColumns = 240;

// How the sums of a tile begin. With `continued`, a sum is one chain of fused multiply-adds in the order of k, as in
// TransformerTable.chain. With `added`, the sums of blocks are added, which is more exact if k is large.
enum class Start { zero, continued, added };

// Computes a tile of c from a panel of `a` and a panel of b with k products. For bf16, k is a multiple of 4.
using Tile = void (*)(int64_t k, const void *a, const void *b, float *c, int64_t c_row, Start start);
void tile_f32(int64_t k, const void *a, const void *b, float *c, int64_t c_row, Start start);
void tile_bf16(int64_t k, const void *a, const void *b, float *c, int64_t c_row, Start start); // only if has_bfmmla()

// The operands of a batch of products. Safe for concurrent use.
struct GemmOperands {
  virtual ~GemmOperands() = default;
  // Pack rows [row, row + rows) of `a`, or columns of b, with the products [k, k + depth), into panels. Missing rows
  // and columns of the last panel, and missing products of the last group of bf16, become zero. scratch has own_scratch
  // bytes (Gemm).
  virtual void pack_a(int64_t batch, int64_t row, int64_t rows, int64_t k, int64_t depth, void *to) const = 0;
  virtual void pack_b(int64_t batch, int64_t column, int64_t columns, int64_t k, int64_t depth, void *to,
                      char *scratch) const = 0;
  // Receives the sums of a block of c.
  virtual void store(int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *sums,
                     int64_t sums_row) const = 0;
};

// Divides a batch of products into tasks, and runs them.
class Gemm {
public:
  // own_scratch is the number of bytes of scratch memory that pack_b needs. If split is false, sums are `continued`,
  // and the results depend only on the operands. If split is true, sums are `added`. A product with a large k but few
  // blocks is then divided along k, so the results depend on the number of threads.
  Gemm(int64_t batch, int64_t m, int64_t n, int64_t k, bool bf16, int threads, bool split, int64_t own_scratch = 0);
  int64_t workspace() const { return threads_ * scratch_ + (splits_ > 1 ? splits_ * batch_ * m_ * n_ * 4 : 0); }
  void run(const GemmOperands &operands, void *workspace) const;

private:
  void task(const GemmOperands &operands, int64_t number, char *scratch, float *parts) const;
  void merge(const GemmOperands &operands, float *parts) const;

  int64_t batch_, m_, n_, k_, threads_;
  bool bf16_, split_;
  int64_t rows_, columns_; // size of a block
  int64_t row_blocks_, column_blocks_;
  int64_t splits_ = 1;                   // parts of k
  int64_t a_bytes_, b_bytes_, sums_row_; // of a task; sums_row_: elements from one row of sums to the next
  int64_t scratch_;                      // scratch memory of a thread, bytes
};

} // namespace hetero
