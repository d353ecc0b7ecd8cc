// panel_linear.cc: Linear and its gradients in f32 or bf16, on plain operands.
//
// R is the number of rows, I of inputs, and O of outputs. A product computes tiles of its result. It broadcasts the
// elements of one operand, and reads the other one from a panel of kPanel columns (panel_product.h):
//
//     product        result   broadcast operand   panel
//     forward        R x O    src                 weight, units of inputs (transposed)
//     diff_src       R x I    diff_dst            weight, units of outputs
//     diff_weights   O x I    diff_dst            src, units of rows
//
// A task multiplies a few panels at a time, and reads each row once for all of them. The panels fit into a second-level
// cache. Each task packs its own panels. With hundreds of rows, packing takes one percent of the time of the products.
// All operands stay plain, so the f32 values of parameters and their bf16 copies have one layout for all three
// products.
#include "panel_linear.h"

#include <algorithm>
#include <cstring>

#include "layout.h"
#include "operands.h"
#include "pair_product.h"

namespace hetero {
namespace {

constexpr int64_t kUnit = 4; // bytes of a unit
// Bytes of panels of a task. They leave space for rows in a second-level cache of 1 MiB.
constexpr int64_t kCache = 640 * 1024;

// Returns the number of panels that a task multiplies at a time. It is so small that each part gets tasks.
int64_t panels_at_once(int64_t units, int64_t panels, int64_t parts) {
  return std::clamp<int64_t>(kCache / (units * kPanel * kUnit), 1, std::max<int64_t>(1, panels / (2 * parts)));
}

// Calls f(task, memory) for all tasks. Each part has consecutive tasks and its own memory.
template <class F> void each(int64_t parts, int64_t tasks, void *workspace, int64_t part_bytes, F f) {
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < parts; part++)
    for (int64_t i = tasks * part / parts; i < tasks * (part + 1) / parts; i++)
      f(i, static_cast<char *>(workspace) + part * part_bytes);
}

// Returns the loops for a type, or nullptr if there are none.
const PanelTable *panels_for(int32_t dtype) {
  return dtype == HT_F32 ? float_panels() : dtype == HT_BF16 ? pair_table() : nullptr;
}

// Computes dst (R, columns) = src (R, K) · panels. K is a whole number of units.
struct RowsByPanels : Kernel {
  const PanelTable &loops;
  bool transposed; // true: the weight is (columns, K); false: (K, columns)
  int64_t parts, rows, sum, columns, splits, part_bytes;
  int64_t units;        // number of units in K
  int64_t wide, groups; // panels of a task; number of such groups of panels
  bool bf16;            // whether dst is bf16; otherwise it is f32

  RowsByPanels(const Request &r, bool forward)
      : loops(*panels_for(r.in[0].dtype)), transposed(forward), parts(r.threads) {
    take_plain(*this, r);
    rows = in[0].dims[0];
    sum = in[0].dims[1];
    columns = out[0].dims[1];
    units = sum / loops.elements;
    bf16 = out[0].dtype == HT_BF16;
    const int64_t panels = (columns + kPanel - 1) / kPanel;
    wide = panels_at_once(units, panels, parts);
    groups = (panels + wide - 1) / wide;
    // Rows are divided only if there are too few tasks for the threads, because each part packs the panels again.
    splits = std::clamp<int64_t>((2 * parts + groups - 1) / groups, 1, std::max<int64_t>(1, rows / 128));
    part_bytes = up(wide * units * kPanel * kUnit + kTileRows * kPanel * int64_t(sizeof(float)), 64);
    workspace = parts * part_bytes;
  }

  void run(const Args &a) override {
    const auto *src = static_cast<const char *>(a.in[0]), *weight = static_cast<const char *>(a.in[1]);
    const auto *bias = in.size() == 3 ? static_cast<const float *>(a.in[2]) : nullptr;
    const int64_t size = kUnit / loops.elements, dst_size = bf16 ? 2 : 4;
    const int64_t panel = units * kPanel; // units of a panel
    each(parts, groups * splits, a.workspace, part_bytes, [&](int64_t task, char *memory) {
      const int64_t first = task / splits * wide * kPanel, last = std::min(first + wide * kPanel, columns);
      const int64_t split = task % splits, from = up(rows * split / splits, kTileRows);
      const int64_t to = std::min(up(rows * (split + 1) / splits, kTileRows), rows);
      auto *packed = reinterpret_cast<uint32_t *>(memory);
      auto *sums = reinterpret_cast<float *>(packed + wide * panel);
      for (int64_t at = first; at < last; at += kPanel) {
        uint32_t *p = packed + (at - first) / kPanel * panel;
        if (transposed)
          loops.transpose(weight + at * sum * size, units, std::min(kPanel, columns - at), units, p);
        else
          loops.interleave(weight + at * size, columns, sum, std::min(kPanel, columns - at), kPanel, 0, p, nullptr);
      }
      for (int64_t r = from; r < to; r += kTileRows)
        for (int64_t at = first; at < last; at += kPanel) {
          const int64_t count = std::min(kTileRows, rows - r), n = std::min(kPanel, columns - at);
          const uint32_t *p = packed + (at - first) / kPanel * panel;
          loops.tile[count - 1][vectors(n) - 1](
              {units, src + r * sum * size, units, 1, p, kPanel, sums, kPanel, false});
          loops.finish[bf16](count, n, sums, bias ? bias + at : nullptr,
                             static_cast<char *>(a.out[0]) + (r * columns + at) * dst_size, columns);
        }
    });
  }
};

struct DiffWeights : Kernel {
  static constexpr int64_t kSum = 1024; // units of a block; a panel of them fills a fifth of a second-level cache
  const PanelTable &loops;
  int64_t parts, rows, inputs, outputs, block, panels, groups, panel, group;

  explicit DiffWeights(const Request &r) : loops(*panels_for(r.in[0].dtype)), parts(r.threads) {
    take_plain(*this, r);
    rows = in[0].dims[0];
    inputs = in[0].dims[1];
    outputs = in[1].dims[1];
    block = up(std::min(rows, kSum * loops.elements), loops.elements);
    panels = (inputs + kPanel - 1) / kPanel;
    groups = up(outputs, kPanel) / kTileRows;
    panel = block / loops.elements * kPanel;
    group = block / loops.elements * kTileRows +
            16; // one additional cache line, so that the groups do not compete for the same lines of the cache
    workspace = (panels * panel + groups * group) * kUnit;
    workspace += parts * kTileRows * kPanel * int64_t(sizeof(float));
  }

  void run(const Args &a) override {
    const auto *src = static_cast<const char *>(a.in[0]), *diff = static_cast<const char *>(a.in[1]);
    const int64_t size = kUnit / loops.elements;
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
        const char *block_of = (of_src ? src : diff) + (from * width + at) * size;
        if (of_src)
          loops.interleave(block_of, width, count, std::min(kPanel, width - at), kPanel, 0, columns + task * panel,
                           nullptr);
        else
          loops.interleave(block_of, width, count, std::min(kPanel, width - at), kTileRows, group,
                           lines + at / kTileRows * group, bias ? bias + at : nullptr);
      });
      // A task multiplies a few panels with a quarter of the outputs.
      constexpr int64_t splits = 4;
      const int64_t used = (outputs + kTileRows - 1) / kTileRows, units = (count + loops.elements - 1) / loops.elements;
      const int64_t at_once = panels_at_once(units, panels, parts), tasks = (panels + at_once - 1) / at_once;
      each(parts, tasks * splits, scratch, kTileRows * kPanel * int64_t(sizeof(float)),
           [&](int64_t task, char *memory) {
             const int64_t first = task / splits * at_once, last = used * (task % splits + 1) / splits;
             auto *sums = reinterpret_cast<float *>(memory);
             for (int64_t g = used * (task % splits) / splits; g < last; g++)
               for (int64_t p = first; p < std::min(first + at_once, panels); p++) {
                 const int64_t o = g * kTileRows, height = std::min(kTileRows, outputs - o);
                 const int64_t at = p * kPanel, n = std::min(kPanel, inputs - at);
                 float *to = weights + o * inputs + at;
                 const bool whole = n % 16 == 0, add = from > 0;
                 PanelTile t{units, lines + g * group, 1, kTileRows, columns + p * panel, kPanel, to, inputs, add};
                 if (!whole) { // the tile writes whole vectors, so it writes to a buffer first
                   t.out = sums, t.out_row = kPanel, t.add = false;
                 }
                 loops.tile[height - 1][vectors(n) - 1](t);
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
  if (!panels_for(r.in[0].dtype)) return false;
  for (size_t i = 0; i < 2; i++)
    if (r.in[i].dtype != r.in[0].dtype || r.in[i].ndim != 2) return false;
  for (const ht_spec &s : r.out)
    if (s.layout != HT_LAYOUT_PLAIN && s.layout != HT_LAYOUT_ANY) return false;
  return r.out[0].dtype == out_type || (r.op == HT_LINEAR && r.out[0].dtype == HT_F32);
}

std::unique_ptr<Kernel> make_rows_by_panels(const Request &r, bool forward) {
  if (!fits(r, r.in[0].dtype)) return nullptr;
  if (r.in[0].dims[1] % panels_for(r.in[0].dtype)->elements != 0) return nullptr;
  return std::make_unique<RowsByPanels>(r, forward);
}

} // namespace

std::unique_ptr<Kernel> make_panel_linear(const Request &r) { return make_rows_by_panels(r, true); }
std::unique_ptr<Kernel> make_panel_linear_diff_src(const Request &r) { return make_rows_by_panels(r, false); }

std::unique_ptr<Kernel> make_panel_linear_diff_weights(const Request &r) {
  if (!fits(r, HT_F32)) return nullptr;
  return std::make_unique<DiffWeights>(r);
}

} // namespace hetero
