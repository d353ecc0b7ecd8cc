// pair_attention.cc: multi-head attention in bf16 and its gradient, on the tiles of pair_product.h.
//
// T is the number of positions. D is the number of channels of a head. Dp is D rounded up to a multiple of 32. A
// product computes tiles of its result. It broadcasts the elements of one operand, and reads the other one from a panel
// (panel_product.h):
//
//     result       tile             broadcast operand                           panel
//     scores       queries x keys   queries                                     keys, pairs of channels
//     dst          queries x Dp     probabilities                               values, pairs of keys
//     diff_q       queries x Dp     gradients of scores                         keys, pairs of keys
//     diff_k       keys x Dp        gradients of scores, pairs of queries       queries, pairs of queries
//     diff_v       keys x Dp        probabilities, pairs of queries             diff_dst, pairs of queries
//
// Tasks and blocks are those of attention.cc. Probabilities and gradients of scores are rounded to bf16 for the
// products. Sums are in f32.
#include <cstring>

#include "attention.h"
#include "layout.h"
#include "pair_product.h"
#include "transformer_table.h"

namespace hetero {
namespace {

// Queries of a forward task. A larger value packs keys less often; a smaller value balances the load better.
constexpr int64_t kQueries = 256;
// Keys of a backward block: whole panels, and a multiple of 64, which is the unit of the dropout mask.
constexpr int64_t kKeys = 192;
constexpr int64_t kRows = 64; // queries of a backward block: its scores stay in the second-level cache
constexpr int64_t kWide = 32; // columns of a tile of Dp

// Allocates the parts of a task's memory. If the base address is nullptr, it only counts bytes.
struct Memory {
  char *memory = nullptr;
  int64_t bytes = 0;
  template <class T> T *take(int64_t n) {
    T *const here = memory ? reinterpret_cast<T *>(memory + bytes) : nullptr;
    bytes += up(n * int64_t(sizeof(T)), 64);
    return here;
  }
};

struct PairKernel : AttentionKernel {
  using AttentionKernel::AttentionKernel;
  const PairTable &pairs = *pair_table();
  int64_t bytes = 0; // bytes of memory of a part

  // Writes panels of pairs of channels, from rows from … from+count-1 of k (1) or v (2) of a head.
  void transpose(const Args &a, int which, int64_t s, int64_t h, int64_t from, int64_t count, uint32_t *to) const {
    for (int64_t j = 0; j < count; j += kPanel)
      pairs.transpose(source(a, which, s, h, from + j), step(which) / 2, std::min(kPanel, count - j), d / 2,
                      to + j * (d / 2));
  }

  // Computes out (rows, count) = x (rows, D) · panels. Rows of x are `row` elements apart.
  void score(int64_t rows, const void *x, int64_t row, const uint32_t *panels, int64_t count, float *out,
             int64_t out_row) const {
    for (int64_t j = 0; j < count; j += kPanel)
      pairs.tile[rows - 1][vectors(count - j) - 1](
          {d / 2, x, row / 2, 1, panels + j * (d / 2), kPanel, out + j, out_row, false});
  }

  // Computes out (rows, Dp) = coefficients · x (k pairs, Dp). If `add` is true, it adds the product to out.
  void multiply(int64_t rows, int64_t k, const void *coefficients, int64_t row, int64_t step, const uint32_t *x,
                float *out, bool add) const {
    for (int64_t j = 0; j < dp; j += kWide)
      pairs.tile[rows - 1][kWide / 16 - 1]({k, coefficients, row, step, x + j, dp, out + j, dp, add});
  }
};

struct PairAttention final : PairKernel {
  // tp is the number of keys, rounded up to whole panels and to the unit of the dropout mask. pieces is the number of
  // tasks of a head.
  int64_t tp, pieces;

  explicit PairAttention(const Request &request) : PairKernel(request, 0, request.threads) {
    tp = up(t, kKeys);
    pieces = n * heads >= 2 * parts ? 1 : up(t, kQueries) / kQueries;
    Memory sizes;
    parts_of(sizes);
    bytes = sizes.bytes;
    workspace = parts * bytes;
  }

  struct Parts {
    uint32_t *panels, *v;
    float *scores, *y;
    uint16_t *p;
    uint8_t *mask;
  };
  Parts parts_of(Memory &m) const {
    Parts w;
    w.panels = m.take<uint32_t>(tp * d / 2);
    w.v = m.take<uint32_t>(tp * dp / 2);
    w.scores = m.take<float>(kTileRows * tp);
    w.y = m.take<float>(kTileRows * dp);
    w.p = m.take<uint16_t>(kTileRows * tp);
    w.mask = m.take<uint8_t>(tp);
    return w;
  }

  void run(const Args &a) override {
    each(a, n * heads * pieces, bytes, [&](int64_t task, char *memory) {
      const int64_t head = task / pieces, piece = task % pieces;
      const int64_t from = up(t * piece / pieces, 8), to = piece + 1 == pieces ? t : up(t * (piece + 1) / pieces, 8);
      queries(a, head / heads, head % heads, std::min(from, t), std::min(to, t), memory);
    });
  }

  void queries(const Args &a, int64_t s, int64_t h, int64_t from, int64_t to, char *memory) const {
    const int64_t len = length(a, s), end = std::min(to, len), count = end > from ? keys(len, end - 1) : 0;
    Memory m{memory};
    const Parts w = parts_of(m);
    const auto narrow = transformer().narrow[1];
    if (count > 0) {
      transpose(a, 1, s, h, 0, count, w.panels);
      pairs.pair_rows(source(a, 2, s, h, 0), kv_stride, count, d, dp, w.v);
    }
    auto *lse = static_cast<float *>(a.out[1]) + (s * heads + h) * t;
    char *dst = static_cast<char *>(a.out[0]) + (s * t * c + h * d) * size;
    for (int64_t i = from; i < end; i += kTileRows) {
      const int64_t rows = std::min(kTileRows, end - i), seen = keys(len, i + rows - 1);
      score(rows, source(a, 0, s, h, i), stride, w.panels, seen, w.scores, tp);
      float sums[kTileRows];
      for (int64_t r = 0; r < rows; r++) {
        if (p.p > 0) keep(a, s, h, i + r, 0, seen, w.mask);
        float largest;
        pairs.exponentials(keys(len, i + r), up(seen, 16), w.scores + r * tp, scale, p.p > 0 ? w.mask : nullptr,
                           w.p + r * tp, &largest, &sums[r]);
        lse[i + r] = largest * scale + std::log(sums[r]);
      }
      multiply(rows, (seen + 1) / 2, w.p, tp / 2, 1, w.v, w.y, false);
      for (int64_t r = 0; r < rows; r++) narrow(d, w.y + r * dp, factor / sums[r], dst + (i + r) * c * size);
    }
    for (int64_t i = std::max(from, end); i < to; i++) {
      lse[i] = 0;
      std::memset(dst + i * c * size, 0, size_t(d * size));
    }
  }
};

struct PairAttentionDiff final : PairKernel {
  int64_t sums; // number of keys whose gradients are in scratch memory

  explicit PairAttentionDiff(const Request &request) : PairKernel(request, 3, request.threads) {
    want_f32(in[2]);
    sums = group == 1 ? kKeys : up(t, kKeys);
    Memory sizes;
    parts_of(sizes);
    bytes = sizes.bytes;
    workspace = parts * bytes;
  }

  struct Parts {
    float *dq, *inner;                   // for all queries
    uint32_t *q, *dy;                    // for all queries, as pairs of rows
    uint32_t *k_panels, *v_panels, *k;   // for a block's keys
    float *dk, *dv;                      // for a block's keys; with several heads of q, for all keys
    float *scores, *diff;                // (queries, keys) of a block
    uint32_t *probabilities, *gradients; // (queries, keys) of a block, as pairs of queries
    uint16_t *gradient_rows;             // gradients of scores, (queries, keys) of a block
    uint8_t *mask;                       // for two queries
  };
  Parts parts_of(Memory &m) const {
    const int64_t tp = up(t, 2);
    Parts w;
    w.dq = m.take<float>(t * dp);
    w.inner = m.take<float>(t);
    w.q = m.take<uint32_t>(tp * dp / 2);
    w.dy = m.take<uint32_t>(tp * dp / 2);
    w.k_panels = m.take<uint32_t>(kKeys * d / 2);
    w.v_panels = m.take<uint32_t>(kKeys * d / 2);
    w.k = m.take<uint32_t>(kKeys * dp / 2);
    w.dk = m.take<float>(sums * dp);
    w.dv = m.take<float>(sums * dp);
    w.scores = m.take<float>(kRows * kKeys);
    w.diff = m.take<float>(kRows * kKeys);
    w.probabilities = m.take<uint32_t>(kRows * kKeys / 2);
    w.gradients = m.take<uint32_t>(kRows * kKeys / 2);
    w.gradient_rows = m.take<uint16_t>(kRows * kKeys);
    w.mask = m.take<uint8_t>(2 * kKeys);
    return w;
  }

  void run(const Args &a) override {
    each(a, n * shared, bytes, [&](int64_t task, char *memory) {
      Memory m{memory};
      const Parts w = parts_of(m);
      for (int64_t h = task % shared * group; h < (task % shared + 1) * group; h++) head(a, task / shared, h, w);
    });
  }

  void give(const Args &a, int which, int64_t s, int64_t h, int64_t from, int64_t count, const float *rows,
            float f) const {
    for (int64_t i = 0; i < count; i++) transformer().narrow[1](d, rows + i * dp, f, result(a, which, s, h, from + i));
  }

  void head(const Args &a, int64_t s, int64_t h, Parts w) const {
    float *const all_dk = w.dk, *const all_dv = w.dv;
    const int64_t len = length(a, s), at = (s * t * c + h * d) * size;
    const char *dy = static_cast<const char *>(a.in[0]) + at, *dst = static_cast<const char *>(a.in[1]) + at;
    if (len > 0) {
      pairs.pair_rows(source(a, 0, s, h, 0), stride, len, d, dp, w.q);
      pairs.pair_rows(dy, c, len, d, dp, w.dy);
    }
    for (int64_t i = 0; i < len; i++) w.inner[i] = pairs.dot(d, dy + i * c * size, dst + i * c * size);
    std::fill(w.dq, w.dq + len * dp, 0.0f);
    for (int64_t from = 0; from < len; from += kKeys) {
      const int64_t count = std::min(kKeys, len - from);
      w.dk = all_dk + (group == 1 ? 0 : from * dp);
      w.dv = all_dv + (group == 1 ? 0 : from * dp);
      transpose(a, 1, s, h, from, count, w.k_panels);
      transpose(a, 2, s, h, from, count, w.v_panels);
      pairs.pair_rows(source(a, 1, s, h, from), kv_stride, count, d, dp, w.k);
      if (h % group == 0) {
        std::fill(w.dk, w.dk + count * dp, 0.0f);
        std::fill(w.dv, w.dv + count * dp, 0.0f);
      }
      for (int64_t i = p.causal ? from : 0; i < len; i += kRows)
        block(a, s, h, dy, len, from, count, i, std::min(kRows, len - i), w);
      if (h % group + 1 < group) continue;
      give(a, 1, s, h, from, count, w.dk, scale);
      give(a, 2, s, h, from, count, w.dv, 1);
    }
    give(a, 0, s, h, 0, len, w.dq, scale);
    clear(a, s, h, len);
  }

  // Processes the pairs of queries i … i+rows-1 and keys from … from+count-1.
  void block(const Args &a, int64_t s, int64_t h, const char *dy, int64_t len, int64_t from, int64_t count, int64_t i,
             int64_t rows, const Parts &w) const {
    const auto *lse = static_cast<const float *>(a.in[2]) + (s * heads + h) * t;
    // Returns the number of the block's keys that are used by the last query before row r.
    const auto seen = [&](int64_t r) {
      return std::clamp<int64_t>(keys(len, i + std::min(r, rows) - 1) - from, 0, count);
    };
    const int64_t most = seen(rows);
    for (int64_t r = 0; r < rows; r += kTileRows) {
      const int64_t height = std::min(kTileRows, rows - r), wide = seen(r + kTileRows);
      score(height, source(a, 0, s, h, i + r), stride, w.k_panels, wide, w.scores + r * kKeys, kKeys);
      score(height, dy + (i + r) * c * size, c, w.v_panels, wide, w.diff + r * kKeys, kKeys);
    }
    for (int64_t r = 0; r < rows; r += 2) {
      ScoreRows x{};
      x.padded = up(most, 16);
      x.scale = scale;
      x.factor = factor;
      x.p = w.probabilities + r / 2 * kKeys;
      x.d = w.gradients + r / 2 * kKeys;
      for (int64_t j = 0; j < 2; j++) {
        x.scores[j] = w.scores + (r + j) * kKeys;
        x.diff[j] = w.diff + (r + j) * kKeys;
        x.d_row[j] = w.gradient_rows + (r + j) * kKeys;
        if (r + j >= rows) continue; // n stays 0
        x.n[j] = seen(r + j + 1);
        x.lse[j] = lse[i + r + j];
        x.inner[j] = w.inner[i + r + j];
        if (p.p == 0) continue;
        keep(a, s, h, i + r + j, from, x.n[j], w.mask + j * kKeys);
        x.keep[j] = w.mask + j * kKeys;
      }
      pairs.score_diff(x);
    }
    for (int64_t r = 0; r < rows; r += kTileRows)
      multiply(std::min(kTileRows, rows - r), (seen(r + kTileRows) + 1) / 2, w.gradient_rows + r * kKeys, kKeys / 2, 1,
               w.k, w.dq + (i + r) * dp, true);
    for (int64_t j = 0; j < most; j += kTileRows) {
      const int64_t height = std::min(kTileRows, most - j),
                    pairs_before = p.causal ? std::max<int64_t>(0, from + j - i) / 2 : 0;
      const int64_t used = (rows + 1) / 2 - pairs_before, x = (i / 2 + pairs_before) * dp;
      multiply(height, used, w.probabilities + pairs_before * kKeys + j, 1, kKeys, w.dy + x, w.dv + j * dp, true);
      multiply(height, used, w.gradients + pairs_before * kKeys + j, 1, kKeys, w.q + x, w.dk + j * dp, true);
    }
  }
};

bool fits(const Request &request, size_t first) {
  const auto &p = *static_cast<const ht_attention_params *>(request.params);
  if (!pair_table() || request.in.size() <= first) return false;
  const ht_spec &q = request.in[first];
  if (q.dtype != HT_BF16 || q.ndim != 3 || p.heads < 1) return false;
  return (p.packed ? q.dims[2] / 3 : q.dims[2]) / p.heads % 2 == 0;
}

} // namespace

std::unique_ptr<Kernel> make_pair_attention(const Request &request) {
  return fits(request, 0) ? std::make_unique<PairAttention>(request) : nullptr;
}

std::unique_ptr<Kernel> make_pair_attention_diff(const Request &request) {
  return fits(request, 3) ? std::make_unique<PairAttentionDiff>(request) : nullptr;
}

} // namespace hetero
