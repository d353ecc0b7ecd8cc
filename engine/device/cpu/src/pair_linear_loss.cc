// pair_linear_loss.cc: a linear layer over a vocabulary with softmax cross-entropy in bf16, and its gradient, on the
// tiles of pair_product.h.
//
// Dimensions:
//
//     R   rows whose label is not ignored
//     C   channels
//     V   classes
//     K   classes of a chunk
//
// d is the gradient of the logits. A product computes tiles of its result. It broadcasts the elements of one operand,
// and reads the other one from a panel (panel_product.h):
//
//     result               tile          broadcast operand   panel
//     logits, transposed   classes x R   weight              src, pairs of channels
//     diff_weight          classes x C   d, transposed       src, pairs of rows
//     diff_src             R x C         d                   weight, pairs of classes
//
// Logits exist only in one tile at a time: the statistics or gradients of a tile are computed directly after its
// logits. The gradients of a chunk are stored in two forms, for the two products of the backward pass. All chunks use
// the same panels of src.
//
// One task computes a whole sum, or the sum is divided into parts. The number of parts does not depend on the number of
// threads.
#include <cmath>

#include "layout.h"
#include "linear_loss.h"
#include "pair_product.h"
#include "transformer_table.h"

namespace hetero {
namespace {

// Classes of a chunk. Its weights, gradients and panels must fit into a third-level cache.
constexpr int64_t kClasses = 1024;
constexpr int64_t kRows = 22 * kPanel; // rows of a block; its gradients must fit into the same cache
constexpr int64_t kSplits = 4;         // number of parts into which the classes of a chunk are divided

int64_t panels(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

// Returns the first class of part i of n classes. It is a multiple of kTileRows, or n for i = kSplits.
int64_t split(int64_t n, int64_t i) { return std::min(n, up(n * i / kSplits, kTileRows)); }

struct PairLoss : LinearLoss {
  const PairTable &pairs = *pair_table();
  int64_t src_at, labels_at;

  PairLoss(const Request &request, size_t inputs) : LinearLoss(request, inputs, kRows) {
    const int64_t padded = panels(rows) * kPanel;
    src_at = regions.add(panels(rows) * panel_bytes());
    labels_at = regions.add(padded * int64_t(sizeof(int32_t)));
  }

  int64_t panel_bytes() const { return channels * kPanel * 2; } // bytes of a panel of rows

  const uint16_t *row(const void *base, int64_t i) const { return static_cast<const uint16_t *>(base) + i * channels; }
  uint32_t *src_panel(char *memory, int64_t p) const {
    return reinterpret_cast<uint32_t *>(memory + src_at + p * panel_bytes());
  }

  // Gathers the rows that are not ignored, packs them into panels, and returns their number.
  int64_t pack(const Args &a, char *memory) const {
    const int64_t count = gather(a, memory), wanted = panels(count);
    const auto *used = reinterpret_cast<int32_t *>(memory + used_at);
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    auto *to = reinterpret_cast<int32_t *>(memory + labels_at);
    for (int64_t i = 0; i < wanted * kPanel; i++) to[i] = i < count ? labels[used[i]] : -1;
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < wanted; p++)
      pairs.transpose(row(memory + x_at, p * kPanel), channels / 2, std::min(kPanel, count - p * kPanel), channels / 2,
                      src_panel(memory, p));
    return count;
  }

  // Computes the logits of classes [from, to), at most kTileRows, for a panel of rows.
  LogitTile logits(const Args &a, char *memory, int64_t from, int64_t to, int64_t p, int64_t count, float *sums) const {
    const int64_t valid = std::min(kPanel, count - p * kPanel);
    pairs.tile[to - from - 1][vectors(valid) - 1](
        {channels / 2, row(a.in[1], from), channels / 2, 1, src_panel(memory, p), kPanel, sums, kPanel, false});
    const auto *labels = reinterpret_cast<int32_t *>(memory + labels_at) + p * kPanel;
    return {to - from, valid, sums, bias(a, from), int32_t(from), labels};
  }
};

struct PairForward final : PairLoss {
  int64_t stats_at, own_at;

  explicit PairForward(const Request &request) : PairLoss(request, 3) {
    want_operands(request, biased ? 4 : 3, 3);
    stats_at = regions.add(panels(rows) * kSplits * int64_t(sizeof(LogitPanel)));
    own_at = regions.add(panels(rows) * kPanel * int64_t(sizeof(float)));
    workspace = regions.end;
  }

  void run(const Args &a) override {
    char *memory = static_cast<char *>(a.workspace);
    const auto *used = reinterpret_cast<int32_t *>(memory + used_at);
    auto *own = reinterpret_cast<float *>(memory + own_at);
    auto *stats = reinterpret_cast<LogitPanel *>(memory + stats_at);
    auto *loss = static_cast<float *>(a.out[0]), *lse = static_cast<float *>(a.out[2]);
    auto *rank = static_cast<int32_t *>(a.out[1]);
    for (int64_t r = 0; r < rows; r++) loss[r] = lse[r] = 0, rank[r] = -1;
    const int64_t count = pack(a, memory), wanted = panels(count);
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < wanted; p++) own_logits(a, memory, p, count, own + p * kPanel);
    for (int64_t from = 0; from < classes && count > 0; from += kClasses) {
      const int64_t n = std::min(kClasses, classes - from);
#pragma omp parallel for schedule(static)
      for (int64_t task = 0; task < wanted * kSplits; task++) {
        const int64_t p = task / kSplits, i = task % kSplits, end = from + split(n, i + 1);
        LogitPanel &s = stats[task];
        for (int64_t r = 0; from == 0 && r < kPanel; r++) s.sum[r] = 0, s.largest[r] = -INFINITY, s.higher[r] = 0;
        float sums[kTileRows * kPanel];
        for (int64_t k = from + split(n, i); k < end; k += kTileRows)
          pairs.logit_stats(logits(a, memory, k, std::min(end, k + kTileRows), p, count, sums), own + p * kPanel, &s);
      }
    }
    for (int64_t i = 0; i < count; i++) {
      double sum = 0;
      float largest = -INFINITY;
      int32_t higher = 0;
      for (int64_t part = 0; part < kSplits; part++)
        largest = std::max(largest, at(stats, i, part).largest[i % kPanel]);
      for (int64_t part = 0; part < kSplits; part++) {
        const LogitPanel &s = at(stats, i, part);
        if (s.sum[i % kPanel] != 0) sum += s.sum[i % kPanel] * std::exp(double(s.largest[i % kPanel]) - largest);
        higher += s.higher[i % kPanel];
      }
      const double log_sum = std::log(sum);
      const int64_t r = used[i];
      lse[r] = float(largest + log_sum);
      loss[r] = float(log_sum - (double(own[i]) - largest));
      rank[r] = higher;
    }
  }

  static const LogitPanel &at(const LogitPanel *stats, int64_t row, int64_t part) {
    return stats[row / kPanel * kSplits + part];
  }

  // Computes the logit of each row's label with the same instructions as the other logits, so that equal scores are
  // bit-equal.
  void own_logits(const Args &a, char *memory, int64_t p, int64_t count, float *own) const {
    const auto *labels = reinterpret_cast<int32_t *>(memory + labels_at) + p * kPanel;
    float sums[kPanel];
    for (int64_t r = 0; r < kPanel; r++) {
      own[r] = 0;
      if (labels[r] < 0) continue;
      const LogitTile t = logits(a, memory, labels[r], labels[r] + 1, p, count, sums);
      own[r] = sums[r] + (t.bias ? *t.bias : 0.0f);
    }
  }
};

struct PairBackward final : PairLoss {
  int64_t block_panels, most; // panels of rows of a block; largest number of classes of a chunk, rounded up
  int64_t lines_at, lse_at, transposed_at, gradients_at, weights_at, diff_at;

  explicit PairBackward(const Request &request) : PairLoss(request, 5) {
    want_operands(request, biased ? 6 : 5, biased ? 3 : 2);
    want_f32(in[3]);
    want_f32(in[4]);
    block_panels = std::min(panels(rows), kRows / kPanel);
    most = std::min(kClasses, up(classes, kTileRows));
    lines_at = regions.add(panels(channels) * panels(rows) * kPanel * kPanel * 2);
    lse_at = regions.add(panels(rows) * kPanel * int64_t(sizeof(float)));
    transposed_at = regions.add(most * block_panels * kPanel * 2);
    gradients_at = regions.add(most * block_panels * kPanel * 2);
    weights_at = regions.add(panels(channels) * most * kPanel * 2);
    diff_at = regions.add(rows * channels * int64_t(sizeof(float)));
    workspace = regions.end;
  }

  // Returns the panels of channels c*kPanel … c*kPanel+kPanel-1, for the rows from panel p on, as pairs of rows.
  uint32_t *lines(char *memory, int64_t c, int64_t p) const {
    return reinterpret_cast<uint32_t *>(memory + lines_at) + (c * panels(rows) + p) * kPanel * (kPanel / 2);
  }

  void run(const Args &a) override {
    char *memory = static_cast<char *>(a.workspace), *diff_src = static_cast<char *>(a.out[0]);
    const auto *used = reinterpret_cast<int32_t *>(memory + used_at);
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    auto *lse = reinterpret_cast<float *>(memory + lse_at);
    auto *diff = reinterpret_cast<float *>(memory + diff_at);
    const int64_t count = pack(a, memory);
    if (count == 0) {
      for (size_t i = 0; i < out.size(); i++) std::memset(a.out[i], 0, size_t(out[i].bytes));
      return;
    }
    for (int64_t i = 0; i < panels(count) * kPanel; i++)
      lse[i] = i < count ? static_cast<const float *>(a.in[3])[used[i]] : 0.0f;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < panels(channels); c++)
      pairs.interleave(row(memory + x_at, 0) + c * kPanel, channels, count, std::min(kPanel, channels - c * kPanel),
                       kPanel, 0, lines(memory, c, 0), nullptr);
    for (int64_t from = 0; from < classes; from += kClasses)
      for (int64_t p = 0; p < panels(count); p += block_panels)
        block_of(a, memory, from, std::min(kClasses, classes - from), p, std::min(panels(count), p + block_panels),
                 count);
    for (int64_t r = 0; r < rows; r++)
      if (labels[r] < 0) std::memset(diff_src + r * channels * size, 0, size_t(channels * size));
    const auto narrow = transformer().narrow[1];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) narrow(channels, diff + i * channels, 1, diff_src + used[i] * channels * size);
  }

  // Processes the classes [from, from + n) and the rows of panels [first, last).
  void block_of(const Args &a, char *memory, int64_t from, int64_t n, int64_t first, int64_t last,
                int64_t count) const {
    const int64_t width = (last - first) * kPanel, padded = up(n, kTileRows), wide = panels(channels);
    const auto *lse = reinterpret_cast<float *>(memory + lse_at);
    const float scale = *static_cast<const float *>(a.in[4]);
    auto *transposed = reinterpret_cast<uint16_t *>(memory + transposed_at); // (padded, width)
    auto *gradients = reinterpret_cast<uint32_t *>(memory + gradients_at);   // (panels, padded/2, kPanel) pairs
    auto *weights = reinterpret_cast<uint32_t *>(memory + weights_at);       // (panels of C, padded/2, kPanel) pairs
    const int64_t logit_tasks = (last - first) * kSplits, pack_tasks = first == 0 ? wide : 0;
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < logit_tasks + pack_tasks; task++) {
      if (task >= logit_tasks) {
        const int64_t c = task - logit_tasks;
        pairs.interleave(row(a.in[1], from) + c * kPanel, channels, n, std::min(kPanel, channels - c * kPanel), kPanel,
                         0, weights + c * (padded / 2) * kPanel, nullptr);
        continue;
      }
      const int64_t p = first + task / kSplits, i = task % kSplits, end = split(n, i + 1);
      float sums[kTileRows * kPanel];
      for (int64_t k = split(n, i); k < end; k += kTileRows) {
        const LogitTile t = logits(a, memory, from + k, from + std::min(end, k + kTileRows), p, count, sums);
        pairs.logit_diff(t, lse + p * kPanel, scale, transposed + k * width + (p - first) * kPanel, width,
                         gradients + ((p - first) * (padded / 2) + k / 2) * kPanel);
      }
    }
    const int64_t block_rows = std::min(width, count - first * kPanel);
    auto *diff_weight = static_cast<float *>(a.out[1]) + from * channels;
    auto *diff_bias = biased ? static_cast<float *>(a.out[2]) + from : nullptr;
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < wide * kSplits; task++) {
      const int64_t c = task / kSplits, at = c * kPanel, i = task % kSplits, end = split(n, i + 1);
      for (int64_t k = split(n, i); k < end; k += kTileRows) {
        const int64_t height = std::min(kTileRows, end - k);
        pairs.tile[height - 1][vectors(channels - at) - 1]({(block_rows + 1) / 2, transposed + k * width, width / 2, 1,
                                                            lines(memory, c, first), kPanel,
                                                            diff_weight + k * channels + at, channels, first > 0});
        for (int64_t r = k; c == 0 && diff_bias && r < k + height; r++)
          diff_bias[r] = pairs.sum(block_rows, transposed + r * width) + (first > 0 ? diff_bias[r] : 0.0f);
      }
    }
    auto *diff = reinterpret_cast<float *>(memory + diff_at) + first * kPanel * channels;
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < wide * (last - first); task++) {
      const int64_t c = task / (last - first), p = task % (last - first), at = c * kPanel;
      for (int64_t r = p * kPanel; r < std::min((p + 1) * kPanel, block_rows); r += kTileRows)
        pairs.tile[std::min(kTileRows, block_rows - r) - 1][vectors(channels - at) - 1](
            {(n + 1) / 2, gradients + p * (padded / 2) * kPanel + r % kPanel, 1, kPanel,
             weights + c * (padded / 2) * kPanel, kPanel, diff + r * channels + at, channels, from > 0});
    }
  }
};

// Returns whether these kernels support the request. Tiles write whole vectors of 16 channels.
bool fits(const Request &request) {
  return pair_table() && request.in.size() >= 3 && request.in[0].dtype == HT_BF16 && request.in[1].dtype == HT_BF16 &&
         request.in[0].ndim == 2 && request.in[0].dims[1] % 16 == 0;
}

} // namespace

std::unique_ptr<Kernel> make_pair_linear_loss(const Request &request) {
  return fits(request) ? std::make_unique<PairForward>(request) : nullptr;
}

std::unique_ptr<Kernel> make_pair_linear_loss_diff(const Request &request) {
  return fits(request) ? std::make_unique<PairBackward>(request) : nullptr;
}

} // namespace hetero
