// pair_linear.cc: Linear and its gradients in bf16, on plain operands.
//
// Legend: R rows, I inputs, O outputs. A task multiplies rows by one panel of kPanel columns:
//
//                  dst (rows x columns)   broadcast     panel
//   forward        R x O                  src           weight, pairs of inputs (transposed)
//   diff_src       R x I                  diff_dst      weight, pairs of outputs
//   diff_weights   O x I                  diff_dst      src, pairs of rows
//
// Each task packs its own panel: with hundreds of rows, packing takes one percent of the time of the products. All
// operands stay plain, so the f32 values of parameters and their bf16 copies have one layout for all three products.
#include "pair_linear.h"

#include <algorithm>
#include <cstring>

#include "layout.h"
#include "operands.h"
#include "pair_product.h"

namespace hetero {
namespace {

// Runs f(task, memory) for all tasks. Each part has consecutive tasks and its own memory.
template <class F> void each(int64_t parts, int64_t tasks, void *workspace, int64_t part_bytes, F f) {
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < parts; part++)
    for (int64_t i = tasks * part / parts; i < tasks * (part + 1) / parts; i++)
      f(i, static_cast<char *>(workspace) + part * part_bytes);
}

// Computes dst (R, columns) = src (R, K) · panels. K is even.
struct RowsByPanels : Kernel {
  const PairTable &pairs = *pair_table();
  bool transposed; // the weight is (columns, K), else (K, columns)
  int64_t parts, rows, sum, columns, panels, splits, part_bytes;
  bool bf16; // type of dst: bf16, else f32

  RowsByPanels(const Request &r, bool forward) : transposed(forward), parts(r.threads) {
    take_plain(*this, r);
    rows = in[0].dims[0];
    sum = in[0].dims[1];
    columns = out[0].dims[1];
    bf16 = out[0].dtype == HT_BF16;
    panels = (columns + kPanel - 1) / kPanel;
    // Rows are divided only if there are fewer panels than the threads need, because each division packs the panels
    // again.
    splits = std::clamp<int64_t>((2 * parts + panels - 1) / panels, 1, std::max<int64_t>(1, rows / 128));
    part_bytes = up(sum * kPanel * 2 + kTileRows * kPanel * int64_t(sizeof(float)), 64);
    workspace = parts * part_bytes;
  }

  void run(const Args &a) override {
    const auto *src = static_cast<const uint16_t *>(a.in[0]), *weight = static_cast<const uint16_t *>(a.in[1]);
    const auto *bias = in.size() == 3 ? static_cast<const float *>(a.in[2]) : nullptr;
    const int64_t size = bf16 ? 2 : 4;
    each(parts, panels * splits, a.workspace, part_bytes, [&](int64_t task, char *memory) {
      const int64_t at = task / splits * kPanel, split = task % splits, n = std::min(kPanel, columns - at);
      const int64_t from = up(rows * split / splits, kTileRows), to = up(rows * (split + 1) / splits, kTileRows);
      auto *panel = reinterpret_cast<uint32_t *>(memory);
      auto *sums = reinterpret_cast<float *>(memory + sum * kPanel * 2);
      if (transposed)
        pairs.transpose(weight + at * sum, sum, n, sum, panel);
      else
        pairs.interleave(weight + at, columns, sum, n, kPanel, 0, panel, nullptr);
      for (int64_t r = from; r < std::min(to, rows); r += kTileRows) {
        const int64_t count = std::min(kTileRows, rows - r);
        pairs.tile[count - 1][vectors(n) - 1]({sum / 2, src + r * sum, sum / 2, 1, panel, kPanel, sums, kPanel, false});
        pairs.finish[bf16](count, n, sums, bias ? bias + at : nullptr,
                           static_cast<char *>(a.out[0]) + (r * columns + at) * size, columns);
      }
    });
  }
};

struct DiffWeights : Kernel {
  static constexpr int64_t kSum = 2048; // rows of a block: their panel fills a fifth of a second-level cache
  const PairTable &pairs = *pair_table();
  int64_t parts, rows, inputs, outputs, block, panels, groups, panel, group;

  explicit DiffWeights(const Request &r) : parts(r.threads) {
    take_plain(*this, r);
    rows = in[0].dims[0];
    inputs = in[0].dims[1];
    outputs = in[1].dims[1];
    block = up(std::min(rows, kSum), 2);
    panels = (inputs + kPanel - 1) / kPanel;
    groups = up(outputs, kPanel) / kTileRows;
    panel = block / 2 * kPanel;
    group = block / 2 * kTileRows + 16; // a line more, or all groups would compete for the same lines of the cache
    workspace = (panels * panel + groups * group) * int64_t(sizeof(uint32_t));
    workspace += parts * kTileRows * kPanel * int64_t(sizeof(float));
  }

  void run(const Args &a) override {
    const auto *src = static_cast<const uint16_t *>(a.in[0]), *diff = static_cast<const uint16_t *>(a.in[1]);
    auto *weights = static_cast<float *>(a.out[0]);
    auto *bias = out.size() == 2 ? static_cast<float *>(a.out[1]) : nullptr;
    if (bias) std::memset(bias, 0, size_t(out[1].bytes));
    auto *columns = static_cast<uint32_t *>(a.workspace), *lines = columns + panels * panel;
    void *scratch = lines + groups * group;
    for (int64_t from = 0; from < rows; from += block) {
      const int64_t count = std::min(block, rows - from), wide = groups * kTileRows / kPanel;
      each(parts, panels + wide, nullptr, 0, [&](int64_t task, char *) {
        const bool of_src = task < panels;
        const int64_t at = (of_src ? task : task - panels) * kPanel, width = of_src ? inputs : outputs;
        const uint16_t *block_of = (of_src ? src : diff) + from * width + at;
        if (of_src)
          pairs.interleave(block_of, width, count, std::min(kPanel, width - at), kPanel, 0, columns + task * panel,
                           nullptr);
        else
          pairs.interleave(block_of, width, count, std::min(kPanel, width - at), kTileRows, group,
                           lines + at / kTileRows * group, bias ? bias + at : nullptr);
      });
      // A task multiplies one panel with a quarter of the outputs.
      constexpr int64_t splits = 4;
      const int64_t used = (outputs + kTileRows - 1) / kTileRows,
                    tile_bytes = kTileRows * kPanel * int64_t(sizeof(float));
      each(parts, panels * splits, scratch, tile_bytes, [&](int64_t task, char *memory) {
        const int64_t p = task / splits, at = p * kPanel, n = std::min(kPanel, inputs - at);
        const int64_t last = used * (task % splits + 1) / splits;
        auto *sums = reinterpret_cast<float *>(memory);
        for (int64_t g = used * (task % splits) / splits; g < last; g++) {
          const int64_t o = g * kTileRows, height = std::min(kTileRows, outputs - o);
          float *to = weights + o * inputs + at;
          const bool whole = n % 16 == 0, add = from > 0;
          PairTile t{(count + 1) / 2, lines + g * group, 1, kTileRows, columns + p * panel, kPanel, to, inputs, add};
          if (!whole) { // the tile writes whole vectors, so it writes to sums first
            t.out = sums, t.out_row = kPanel, t.add = false;
          }
          pairs.tile[height - 1][vectors(n) - 1](t);
          for (int64_t r = 0; !whole && r < height; r++)
            for (int64_t c = 0; c < n; c++)
              to[r * inputs + c] = sums[r * kPanel + c] + (add ? to[r * inputs + c] : 0.0f);
        }
      });
    }
  }
};

// Returns whether the operands may be plain and have the types of these kernels.
bool fits(const Request &r, int32_t out_type) {
  if (!pair_table()) return false;
  for (size_t i = 0; i < 2; i++)
    if (r.in[i].dtype != HT_BF16 || r.in[i].ndim != 2) return false;
  for (const ht_spec &s : r.out)
    if (s.layout != HT_LAYOUT_PLAIN && s.layout != HT_LAYOUT_ANY) return false;
  return r.out[0].dtype == out_type || (r.op == HT_LINEAR && r.out[0].dtype == HT_F32);
}

// Returns whether products of rows by panels are possible: pairs are pairs of columns.
bool pairs_fit(const Request &r) { return r.in[0].dims[1] % 2 == 0; }

} // namespace

std::unique_ptr<Kernel> make_pair_linear(const Request &r) {
  if (!fits(r, HT_BF16) || !pairs_fit(r)) return nullptr;
  return std::make_unique<RowsByPanels>(r, true);
}

std::unique_ptr<Kernel> make_pair_linear_diff_src(const Request &r) {
  if (!fits(r, HT_BF16) || !pairs_fit(r)) return nullptr;
  return std::make_unique<RowsByPanels>(r, false);
}

std::unique_ptr<Kernel> make_pair_linear_diff_weights(const Request &r) {
  if (!fits(r, HT_F32)) return nullptr;
  return std::make_unique<DiffWeights>(r);
}

} // namespace hetero
