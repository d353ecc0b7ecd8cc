// attention.cc: multi-head attention and its gradient, without a matrix of scores in memory.
//
// T is the number of positions. D is the number of channels of a head. Dp is D rounded up to a multiple of 32.
//
// Forward: a task is one head of one sample, and up to kQueries queries. It transposes the keys once, to panels of 32
// keys. Blocks of 8 queries compute their scores for all keys, in a buffer that stays in the cache.
//
// Backward: a task is one head of k and v of one sample. It processes the heads of q that use this head one after
// another. For each block of kKeys keys, blocks of 16 queries compute the scores again. The gradients of the block's
// keys and values stay in the cache. The gradients of queries are summed in f32, and so are those of all keys and
// values if there are several heads of q.
//
// One thread computes each task, so results do not depend on the number of threads. Products are in f32 for both types;
// the kernels in pair_attention.cc multiply in bf16.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention.h"
#include "choices.h"
#include "layout.h"
#include "ops.h"
#include "transformer_table.h"

namespace hetero {
namespace {

// Queries of a forward task. A larger value packs keys less often; a smaller value balances the load better.
constexpr int64_t kQueries = 256;
constexpr int64_t kKeys = 256; // keys of a backward block: a multiple of 64, the unit of the dropout mask
constexpr int64_t kRows = 16;  // queries of a backward block

struct RowKernel : AttentionKernel {
  using AttentionKernel::AttentionKernel;

  // Copies rows to f32 rows of dp elements, multiplied by f. Padding is zero.
  void take(const char *rows, int64_t row_bytes, int64_t count, float f, float *to) const {
    const auto widen = transformer().widen[bf16];
    for (int64_t i = 0; i < count; i++, to += dp) {
      widen(d, rows + i * row_bytes, f, to);
      std::fill(to + d, to + dp, 0.0f);
    }
  }

  // Transposes `count` rows of dp elements to panels (D, 32), one panel for 32 rows. Missing rows of the last panel are
  // zero.
  void transpose(const float *rows, int64_t count, float *to) const {
    for (int64_t from = 0; from < count; from += 32) {
      const int64_t lanes = std::min<int64_t>(32, count - from);
      for (int64_t k = 0; k < d; k++) {
        float *line = to + from * d + k * 32;
        for (int64_t l = 0; l < lanes; l++) line[l] = rows[(from + l) * dp + k];
        for (int64_t l = lanes; l < 32; l++) line[l] = 0;
      }
    }
  }

  // Computes scores (rows, count) = q (rows, D) · panels, where count is rounded up to a multiple of 32.
  void score(int64_t rows, const float *q, const float *panels, int64_t count, float *scores, int64_t row) const {
    const auto product = transformer().product;
    for (int64_t r = 0; r < rows; r += 8)
      for (int64_t j = 0; j < count; j += 32)
        product({int(std::min<int64_t>(8, rows - r)), d, q + r * dp, dp, 1, panels + j * d, 32, scores + r * row + j,
                 row, false});
  }

  // Computes out (rows, Dp) = coefficients (rows, k) · x (k, Dp). If add is set, it adds the product to out.
  void multiply(int64_t rows, int64_t k, const float *coefficients, int64_t row, int64_t step, const float *x,
                float *out, bool add) const {
    const auto product = transformer().product;
    for (int64_t r = 0; r < rows; r += 8)
      for (int64_t j = 0; j < dp; j += 32)
        product({int(std::min<int64_t>(8, rows - r)), k, coefficients + r * row, row, step, x + j, dp, out + r * dp + j,
                 dp, add});
  }
};

struct Attention final : RowKernel {
  int64_t tp, pieces, floats; // tp: keys, rounded up to 64; pieces: tasks per head; floats: scratch memory of a part

  explicit Attention(const Request &request) : RowKernel(request, 0, request.threads) {
    tp = up(t, 64);
    pieces = n * heads >= 2 * parts ? 1 : up(t, kQueries) / kQueries;
    floats = tp * d + 2 * tp * dp + 8 * tp + 16 * dp + tp;
    workspace = parts * floats * int64_t(sizeof(float));
  }

  void run(const Args &a) override {
    each(a, n * heads * pieces, floats * int64_t(sizeof(float)), [&](int64_t task, char *memory) {
      const int64_t head = task / pieces, piece = task % pieces;
      const int64_t from = up(t * piece / pieces, 8), to = piece + 1 == pieces ? t : up(t * (piece + 1) / pieces, 8);
      queries(a, head / heads, head % heads, std::min(from, t), std::min(to, t), reinterpret_cast<float *>(memory));
    });
  }

  void queries(const Args &a, int64_t s, int64_t h, int64_t from, int64_t to, float *memory) const {
    const TransformerTable &f = transformer();
    const int64_t len = length(a, s), end = std::min(to, len), count = end > from ? keys(len, end - 1) : 0;
    float *panels = memory, *k = panels + tp * d, *v = k + tp * dp, *scores = v + tp * dp, *q = scores + 8 * tp;
    float *y = q + 8 * dp;
    auto *mask = reinterpret_cast<uint8_t *>(y + 8 * dp);
    take(count ? source(a, 1, s, h, 0) : nullptr, kv_stride * size, count, 1, k);
    transpose(k, count, panels);
    take(count ? source(a, 2, s, h, 0) : nullptr, kv_stride * size, count, 1, v);
    auto *lse = static_cast<float *>(a.out[1]) + (s * heads + h) * t;
    char *dst = static_cast<char *>(a.out[0]) + (s * t * c + h * d) * size;
    for (int64_t i = from; i < end; i += 8) {
      const int64_t rows = std::min<int64_t>(8, end - i), seen = keys(len, i + rows - 1);
      take(source(a, 0, s, h, i), stride * size, rows, scale, q);
      score(rows, q, panels, up(seen, 32), scores, tp);
      float sums[8];
      for (int64_t r = 0; r < rows; r++) {
        float largest;
        f.exponentials(keys(len, i + r), seen, scores + r * tp, &largest, &sums[r]);
        lse[i + r] = largest + std::log(sums[r]);
        if (p.p > 0) {
          keep(a, s, h, i + r, 0, seen, mask);
          f.drop(seen, mask, factor, scores + r * tp);
        }
      }
      multiply(rows, seen, scores, tp, 1, v, y, false);
      for (int64_t r = 0; r < rows; r++) f.narrow[bf16](d, y + r * dp, 1 / sums[r], dst + (i + r) * c * size);
    }
    for (int64_t i = std::max(from, end); i < to; i++) {
      lse[i] = 0;
      std::memset(dst + i * c * size, 0, size_t(d * size));
    }
  }
};

struct AttentionDiff final : RowKernel {
  int64_t sums, floats; // sums: keys whose gradients are in scratch memory; floats: scratch memory of a part

  explicit AttentionDiff(const Request &request) : RowKernel(request, 3, request.threads) {
    want_f32(in[2]);
    sums = group == 1 ? kKeys : up(t, kKeys);
    floats = up(t, 64) * (3 * dp + 1) + kKeys * (2 * d + 2 * dp) + 2 * sums * dp + 2 * kRows * kKeys + kKeys;
    workspace = parts * floats * int64_t(sizeof(float));
  }

  void run(const Args &a) override {
    each(a, n * shared, floats * int64_t(sizeof(float)), [&](int64_t task, char *memory) {
      for (int64_t h = task % shared * group; h < (task % shared + 1) * group; h++)
        head(a, task / shared, h, reinterpret_cast<float *>(memory));
    });
  }

  void give(const Args &a, int which, int64_t s, int64_t h, int64_t from, int64_t count, const float *rows,
            float f) const {
    for (int64_t i = 0; i < count; i++)
      transformer().narrow[bf16](d, rows + i * dp, f, result(a, which, s, h, from + i));
  }

  void head(const Args &a, int64_t s, int64_t h, float *memory) const {
    const TransformerTable &f = transformer();
    const int64_t len = length(a, s), tp = up(t, 64);
    float *q = memory, *dy = q + tp * dp, *dq = dy + tp * dp, *inner = dq + tp * dp;
    float *k_panels = inner + tp, *v_panels = k_panels + kKeys * d, *k = v_panels + kKeys * d, *v = k + kKeys * dp;
    float *all_dk = v + kKeys * dp, *all_dv = all_dk + sums * dp, *scores = all_dv + sums * dp;
    float *diff = scores + kRows * kKeys;
    auto *mask = reinterpret_cast<uint8_t *>(diff + kRows * kKeys);
    const auto *lse = static_cast<const float *>(a.in[2]) + (s * heads + h) * t;
    const int64_t at = (s * t * c + h * d) * size;
    const char *diff_dst = static_cast<const char *>(a.in[0]) + at, *dst = static_cast<const char *>(a.in[1]) + at;
    if (len > 0) take(source(a, 0, s, h, 0), stride * size, len, scale, q);
    take(diff_dst, c * size, len, 1, dy);
    for (int64_t i = 0; i < len; i++) {
      f.widen[bf16](d, dst + i * c * size, 1, k);
      inner[i] = f.chain[0](d, dy + i * dp, k);
    }
    std::fill(dq, dq + len * dp, 0.0f);
    for (int64_t from = 0; from < len; from += kKeys) {
      const int64_t count = std::min(kKeys, len - from);
      float *dk = all_dk + (group == 1 ? 0 : from * dp), *dv = all_dv + (group == 1 ? 0 : from * dp);
      take(source(a, 1, s, h, from), kv_stride * size, count, 1, k);
      take(source(a, 2, s, h, from), kv_stride * size, count, 1, v);
      transpose(k, count, k_panels);
      transpose(v, count, v_panels);
      if (h % group == 0) {
        std::fill(dk, dk + count * dp, 0.0f);
        std::fill(dv, dv + count * dp, 0.0f);
      }
      for (int64_t i = p.causal ? from : 0; i < len; i += kRows) {
        const int64_t rows = std::min(kRows, len - i), seen = std::min(count, keys(len, i + rows - 1) - from);
        score(rows, q + i * dp, k_panels, up(seen, 32), scores, kKeys);
        score(rows, dy + i * dp, v_panels, up(seen, 32), diff, kKeys);
        for (int64_t r = 0; r < rows; r++) {
          const int64_t own = std::clamp<int64_t>(keys(len, i + r) - from, 0, seen);
          if (p.p > 0) keep(a, s, h, i + r, from, own, mask);
          f.score_diff(own, seen, scores + r * kKeys, diff + r * kKeys, lse[i + r], inner[i + r],
                       p.p > 0 ? mask : nullptr, factor);
        }
        multiply(rows, seen, diff, kKeys, 1, k, dq + i * dp, true);
        multiply(seen, rows, scores, 1, kKeys, dy + i * dp, dv, true);
        multiply(seen, rows, diff, 1, kKeys, q + i * dp, dk, true);
      }
      if (h % group + 1 < group) continue;
      give(a, 1, s, h, from, count, dk, 1);
      give(a, 2, s, h, from, count, dv, 1);
    }
    give(a, 0, s, h, 0, len, dq, scale);
    clear(a, s, h, len);
  }
};

std::unique_ptr<Kernel> make_rows(const Request &request) { return std::make_unique<Attention>(request); }
std::unique_ptr<Kernel> make_rows_diff(const Request &request) { return std::make_unique<AttentionDiff>(request); }

} // namespace

std::unique_ptr<Kernel> make_attention(const Request &request) {
  return fastest(request, {kTiles, make_pair_attention}, {kFloatRows, make_rows});
}

std::unique_ptr<Kernel> make_attention_diff(const Request &request) {
  return fastest(request, {kTiles, make_pair_attention_diff}, {kFloatRows, make_rows_diff});
}

} // namespace hetero
