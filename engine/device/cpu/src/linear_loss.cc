// linear_loss.cc: a linear layer over a vocabulary with softmax cross-entropy, and its gradient, without all logits.
//
// Legend: R rows with a label that is not ignored, C channels, Cp C rounded up to 32, V classes.
//
//   forward   threads take ranges of classes. A panel of 32 classes is transposed once; all rows multiply it, and each
//             row keeps the statistics of its logits. The ranges are merged in order; their number is fixed.
//   backward  for each chunk of classes: the gradients of its logits (R, chunk), of its weights, then that of src, which
//             is added up in f32 over the chunks.
//
// Ignored rows are left out before anything is computed. Products are f32 for both types.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "images.h"
#include "layout.h"
#include "ops.h"
#include "transformer_table.h"

namespace hetero {
namespace {

constexpr int64_t kRanges = 64;  // of classes in the forward pass
constexpr int64_t kChunk = 2048; // classes of a chunk: more memory for gradients of logits, fewer passes over src
constexpr int64_t kRowTask = 64; // rows of a task of the gradient of src

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

struct LinearLoss : Kernel {
  bool bf16, biased;
  int64_t rows, channels, padded, classes, size, parts;
  size_t bias_at = 0;

  LinearLoss(const Request &request, size_t inputs)
      : bf16(is_bf16(request.in[0])), biased(request.in.size() > inputs), parts(request.threads) {
    take_plain(*this, request);
    if (in[1].dtype != in[0].dtype) throw Invalid("weight: got " + describe(in[1]) + ", want src's type");
    if (in[2].dtype != HT_I32) throw Invalid("labels: got " + describe(in[2]) + ", want i32");
    bias_at = inputs;
    if (biased) want_f32(in[bias_at]);
    rows = in[0].dims[0];
    channels = in[0].dims[1];
    padded = up(channels, 32);
    classes = in[1].dims[0];
    size = dtype_size(in[0].dtype);
    if (rows > INT32_MAX) throw Unsupported("more than 2^31 rows");
  }

  const float *bias(const Args &a, int64_t k) const {
    return biased ? static_cast<const float *>(a.in[bias_at]) + k : nullptr;
  }
  const char *weight(const Args &a, int64_t k) const {
    return static_cast<const char *>(a.in[1]) + k * channels * size;
  }

  // Lists the rows that are not ignored, and returns their number.
  int64_t list(const Args &a, int32_t *used) const {
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    int64_t count = 0;
    for (int64_t r = 0; r < rows; r++) {
      if (labels[r] >= classes)
        throw std::runtime_error("label " + std::to_string(r) + ": got " + std::to_string(labels[r]) +
                                 ", want below the " + std::to_string(classes) + " classes");
      if (labels[r] >= 0) used[count++] = int32_t(r);
    }
    return count;
  }

  // Copies the listed rows of src to x (count, Cp).
  void gather(const Args &a, const int32_t *used, int64_t count, float *x) const {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
      transformer().widen[bf16](channels, static_cast<const char *>(a.in[0]) + used[i] * channels * size, 1,
                                x + i * padded);
      std::fill(x + i * padded + channels, x + (i + 1) * padded, 0.0f);
    }
  }

  // Transposes the weights of n <= 32 classes to panel (C, 32). Missing classes are zero.
  void transpose(const Args &a, int64_t first, int64_t n, float *panel) const {
    float block[32 * 16];
    for (int64_t c = 0; c < channels; c += 16) {
      const int64_t count = std::min<int64_t>(16, channels - c);
      for (int64_t k = 0; k < n; k++)
        transformer().widen[bf16](count, weight(a, first + k) + c * size, 1, block + k * 16);
      for (int64_t i = 0; i < count; i++) {
        float *line = panel + (c + i) * 32;
        for (int64_t k = 0; k < n; k++) line[k] = block[k * 16 + i];
        for (int64_t k = n; k < 32; k++) line[k] = 0;
      }
    }
  }
};

struct Forward final : LinearLoss {
  int64_t x_at, stats_at, own_at, scratch_at, scratch;

  explicit Forward(const Request &request) : LinearLoss(request, 3) {
    want_operands(request, biased ? 4 : 3, 3);
    x_at = up(rows * int64_t(sizeof(int32_t)), 64);
    stats_at = x_at + rows * padded * int64_t(sizeof(float));
    own_at = up(stats_at + kRanges * rows * int64_t(sizeof(LogitStats)), 64);
    scratch_at = up(own_at + rows * int64_t(sizeof(float)), 64);
    scratch = (channels * 32 + 8 * 32) * int64_t(sizeof(float));
    workspace = scratch_at + parts * scratch;
  }

  void run(const Args &a) override {
    char *memory = static_cast<char *>(a.workspace);
    auto *used = reinterpret_cast<int32_t *>(memory);
    auto *x = reinterpret_cast<float *>(memory + x_at), *own = reinterpret_cast<float *>(memory + own_at);
    auto *stats = reinterpret_cast<LogitStats *>(memory + stats_at);
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    auto *loss = static_cast<float *>(a.out[0]), *lse = static_cast<float *>(a.out[2]);
    auto *rank = static_cast<int32_t *>(a.out[1]);
    const int64_t count = list(a, used);
    for (int64_t r = 0; r < rows; r++) loss[r] = lse[r] = 0, rank[r] = -1;
    if (count == 0) return;
    gather(a, used, count, x);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) { // with the rounding of the products below, so that ranks are exact
      const int64_t label = labels[used[i]];
      own[i] = transformer().chain[bf16](channels, static_cast<const char *>(a.in[0]) + used[i] * channels * size,
                                         weight(a, label));
      if (biased) own[i] += *bias(a, label);
    }
    const int64_t panels = up(classes, 32) / 32;
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < parts; part++)
      for (int64_t i = part; i < kRanges; i += parts)
        range(a, panels * i / kRanges, panels * (i + 1) / kRanges, used, count, x, own, stats + i * rows,
              reinterpret_cast<float *>(memory + scratch_at + part * scratch));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
      float largest = -INFINITY;
      for (int64_t k = 0; k < kRanges; k++) largest = std::max(largest, stats[k * rows + i].largest);
      double sum = 0;
      int64_t higher = 0;
      for (int64_t k = 0; k < kRanges; k++) {
        const LogitStats &s = stats[k * rows + i];
        if (s.sum != 0) sum += s.sum * std::exp(double(s.largest) - largest); // NaN stays
        higher += s.higher;
      }
      const int64_t r = used[i];
      lse[r] = float(largest + std::log(sum));
      loss[r] = float(std::log(sum) - (double(own[i]) - largest));
      rank[r] = int32_t(higher);
    }
  }

  void range(const Args &a, int64_t from, int64_t to, const int32_t *used, int64_t count, const float *x,
             const float *own, LogitStats *stats, float *panel) const {
    const TransformerTable &f = transformer();
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    float *logits = panel + channels * 32;
    for (int64_t i = 0; i < count; i++) stats[i] = {0, -INFINITY, 0};
    for (int64_t block = from; block < to; block++) {
      const int64_t first = block * 32, n = std::min<int64_t>(32, classes - first);
      transpose(a, first, n, panel);
      for (int64_t i = 0; i < count; i += 8) {
        const int group = int(std::min<int64_t>(8, count - i));
        f.product({group, channels, x + i * padded, padded, 1, panel, 32, logits, 32, false});
        for (int r = 0; r < group; r++)
          f.logit_stats(int(n), logits + r * 32, bias(a, first), own[i + r], labels[used[i + r]] - first,
                        &stats[i + r]);
      }
    }
  }
};

struct Backward final : LinearLoss {
  int64_t chunk, x_at, diff_at, logits_at, weights_at, scratch_at, scratch;
  bool copies; // weights of a chunk are copied: to f32, or to rows of Cp

  explicit Backward(const Request &request) : LinearLoss(request, 5) {
    want_operands(request, biased ? 6 : 5, biased ? 3 : 2);
    want_f32(in[3]);
    want_f32(in[4]);
    chunk = std::min(kChunk, up(classes, 32));
    copies = bf16 || padded != channels;
    x_at = up(rows * int64_t(sizeof(int32_t)), 64);
    diff_at = x_at + rows * padded * int64_t(sizeof(float));
    logits_at = diff_at + rows * padded * int64_t(sizeof(float));
    weights_at = logits_at + rows * chunk * int64_t(sizeof(float));
    scratch_at = weights_at + (copies ? chunk * padded * int64_t(sizeof(float)) : 0);
    scratch = (channels * 32 + 8 * 32) * int64_t(sizeof(float));
    workspace = scratch_at + parts * scratch;
  }

  void run(const Args &a) override {
    const TransformerTable &f = transformer();
    char *memory = static_cast<char *>(a.workspace);
    auto *used = reinterpret_cast<int32_t *>(memory);
    auto *x = reinterpret_cast<float *>(memory + x_at), *diff = reinterpret_cast<float *>(memory + diff_at);
    auto *logits = reinterpret_cast<float *>(memory + logits_at),
         *weights = reinterpret_cast<float *>(memory + weights_at);
    const int64_t count = list(a, used);
    gather(a, used, count, x);
    for (int64_t from = 0; from < classes; from += chunk) {
      const int64_t n = std::min(chunk, classes - from), blocks = up(n, 32) / 32;
#pragma omp parallel for schedule(static)
      for (int64_t part = 0; part < parts; part++)
        for (int64_t i = part; i < blocks; i += parts)
          block(a, from, i * 32, used, count, x, logits, weights,
                reinterpret_cast<float *>(memory + scratch_at + part * scratch));
      const float *w = copies ? weights : reinterpret_cast<const float *>(weight(a, from));
      const int64_t tasks = up(count, kRowTask) / kRowTask, columns = padded / 32;
#pragma omp parallel for schedule(static)
      for (int64_t task = 0; task < tasks * columns; task++) {
        const int64_t column = task / tasks * 32, first = task % tasks * kRowTask;
        for (int64_t i = first; i < std::min(count, first + kRowTask); i += 8)
          f.product({int(std::min<int64_t>(8, count - i)), n, logits + i * chunk, chunk, 1, w + column, padded,
                     diff + i * padded + column, padded, from > 0});
      }
    }
    char *diff_src = static_cast<char *>(a.out[0]);
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    for (int64_t r = 0; r < rows; r++)
      if (labels[r] < 0) std::memset(diff_src + r * channels * size, 0, size_t(channels * size));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++)
      f.narrow[bf16](channels, diff + i * padded, 1, diff_src + used[i] * channels * size);
  }

  // The gradients of 32 classes' logits and parameters. Class k of the chunk is class from + k.
  void block(const Args &a, int64_t from, int64_t k, const int32_t *used, int64_t count, const float *x, float *logits,
             float *weights, float *panel) const {
    const TransformerTable &f = transformer();
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    const auto *lse = static_cast<const float *>(a.in[3]);
    const float scale = *static_cast<const float *>(a.in[4]);
    const int64_t first = from + k, n = std::min<int64_t>(32, classes - first);
    transpose(a, first, n, panel);
    for (int64_t i = 0; i < count; i += 8) {
      const int group = int(std::min<int64_t>(8, count - i));
      f.product({group, channels, x + i * padded, padded, 1, panel, 32, logits + i * chunk + k, chunk, false});
      for (int r = 0; r < group; r++)
        f.logit_diff(int(n), logits + (i + r) * chunk + k, bias(a, first), lse[used[i + r]], scale,
                     labels[used[i + r]] - first);
    }
    auto *diff_weight = static_cast<float *>(a.out[1]) + first * channels;
    float *part = panel + channels * 32; // (8, 32)
    for (int64_t column = 0; column < padded; column += 32) {
      const int64_t width = std::min<int64_t>(32, channels - column);
      for (int64_t j = 0; j < n; j += 8) {
        const int group = int(std::min<int64_t>(8, n - j));
        float *to = width == 32 ? diff_weight + j * channels + column : part;
        f.product({group, count, logits + k + j, 1, chunk, x + column, padded, to, width == 32 ? channels : 32, false});
        if (width < 32)
          for (int r = 0; r < group; r++)
            std::memcpy(diff_weight + (j + r) * channels + column, part + r * 32, size_t(width) * sizeof(float));
      }
    }
    if (biased) {
      float sums[32] = {};
      for (int64_t i = 0; i < count; i++) f.add_row[0](32, logits + i * chunk + k, sums);
      std::memcpy(static_cast<float *>(a.out[2]) + first, sums, size_t(n) * sizeof(float));
    }
    if (!copies) return;
    for (int64_t j = 0; j < n; j++) {
      f.widen[bf16](channels, weight(a, first + j), 1, weights + (k + j) * padded);
      std::fill(weights + (k + j) * padded + channels, weights + (k + j + 1) * padded, 0.0f);
    }
  }
};

} // namespace

std::unique_ptr<Kernel> make_linear_cross_entropy(const Request &request) { return std::make_unique<Forward>(request); }
std::unique_ptr<Kernel> make_linear_cross_entropy_diff(const Request &request) {
  return std::make_unique<Backward>(request);
}

} // namespace hetero
