// linear_loss.cc: a linear layer over a vocabulary with softmax cross-entropy, and its gradient, without storing all
// logits.
//
// Dimensions:
//
//     R   rows whose label is not ignored
//     B   rows of a block
//     C   channels
//     V   classes
//     K   classes of a chunk
//
// Both passes loop over chunks of classes, and for each chunk over blocks of rows. For each block and chunk, they run
// the products of Linear and its gradients:
//
//     logits (B, K) = x (B, C) · weight (K, C)ᵀ
//
// The forward pass adds the logits to the statistics of each row. In the backward pass, d (B, K) is the gradient of
// logits, rounded to src's type:
//
//     diff_weight (K, C) = dᵀ · x              added over the blocks
//     diff_src (B, C) = d · weight (K, C)      added over the chunks, in f32
//
// Ignored rows are removed before the first product. Rows of zeros fill the last block.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "choices.h"
#include "layout.h"
#include "linear.h"
#include "linear_loss.h"
#include "ops.h"
#include "panel_linear.h"
#include "panel_product.h"
#include "transformer_table.h"

namespace hetero {
namespace {

// Classes of a chunk. A larger chunk has a larger block of logits; smaller chunks read src more often.
constexpr int64_t kClasses = 2048;
constexpr int64_t kBlock = 256; // rows of a block; a larger block has more logits, and its last block wastes more rows

// A matrix product. Its weight is reordered to the layout that the kernel needs.
struct Product {
  std::unique_ptr<Kernel> kernel, reorder; // nullptr if the kernel needs a plain weight
  int64_t packed = 0, scratch = 0;         // offsets of the packed weight and of the scratch

  Product(const Request &request, Factory make, const ht_spec &src, ht_spec weight, const ht_spec &dst) {
    const ht_linear_params none{};
    const ht_spec plain = weight;
    weight.layout = HT_LAYOUT_ANY;
    weight.bytes = 0;
    kernel = make({HT_LINEAR, &none, {src, weight}, {dst}, request.threads});
    if (kernel->in[0].layout != HT_LAYOUT_PLAIN)
      throw Unsupported("matrix product: got " + describe(kernel->in[0]) + ", want the plain layout");
    if (kernel->in[1].layout != HT_LAYOUT_PLAIN)
      reorder = make_reorder({HT_REORDER, nullptr, {plain}, {kernel->in[1]}, request.threads});
  }

  void reserve(Regions &regions) {
    if (reorder) packed = regions.add(kernel->in[1].bytes);
    scratch = regions.add(std::max(kernel->workspace, reorder ? reorder->workspace : 0));
  }

  // Returns the weight in the layout that run needs.
  void *pack(char *memory, void *weight) const {
    if (!reorder) return weight;
    void *in[] = {weight}, *out[] = {memory + packed};
    reorder->run({in, out, memory + scratch, nullptr});
    return memory + packed;
  }

  void run(char *memory, void *src, void *weight, void *dst) const {
    void *in[] = {src, weight}, *out[] = {dst};
    kernel->run({in, out, memory + scratch, nullptr});
  }
};

// The library that computes the products.
struct Products {
  Factory linear, diff_weights;
};
constexpr Products kLibraryProducts = {make_library_linear, make_library_linear_diff_weights};
constexpr Products kPanelProducts = {make_panel_linear, make_panel_linear_diff_weights};

struct Forward final : LinearLoss {
  std::vector<Product> products; // for a full chunk; for the last chunk, if it is smaller
  int64_t logits_at, stats_at, own_at;

  Forward(const Request &request, const Products &origin) : LinearLoss(request, 3, kBlock) {
    want_operands(request, biased ? 4 : 3, 3);
    logits_at = regions.add(block * std::min(kClasses, classes) * int64_t(sizeof(float)));
    stats_at = regions.add(rows * int64_t(sizeof(LogitStats)));
    own_at = regions.add(rows * int64_t(sizeof(float)));
    for (int64_t n : {std::min(kClasses, classes), classes % kClasses}) {
      if (n == 0) continue;
      products.emplace_back(request, origin.linear, typed({block, channels}), typed({n, channels}),
                            make_spec(HT_F32, {block, n}));
      products.back().reserve(regions);
    }
    workspace = regions.end;
  }

  void run(const Args &a) override {
    const TransformerTable &f = transformer();
    char *memory = static_cast<char *>(a.workspace);
    const auto *used = reinterpret_cast<int32_t *>(memory + used_at);
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    auto *own = reinterpret_cast<float *>(memory + own_at);
    auto *stats = reinterpret_cast<LogitStats *>(memory + stats_at);
    auto *logits = reinterpret_cast<float *>(memory + logits_at);
    auto *loss = static_cast<float *>(a.out[0]), *lse = static_cast<float *>(a.out[2]);
    auto *rank = static_cast<int32_t *>(a.out[1]);
    for (int64_t r = 0; r < rows; r++) loss[r] = lse[r] = 0, rank[r] = -1;
    const int64_t count = gather(a, memory), row = channels * size;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
      const int64_t label = labels[used[i]];
      own[i] = f.chain[bf16](channels, memory + x_at + i * row, weight(a, label));
      if (biased) own[i] += *bias(a, label);
      stats[i] = {0, -INFINITY, 0};
    }
    for (int64_t from = 0; from < classes && count > 0; from += kClasses) {
      const int64_t n = std::min(kClasses, classes - from);
      const Product &product = n == kClasses || from == 0 ? products.front() : products.back();
      void *w = product.pack(memory, weight(a, from));
      for (int64_t first = 0; first < count; first += block) {
        product.run(memory, memory + x_at + first * row, w, logits);
#pragma omp parallel for schedule(static)
        for (int64_t i = first; i < std::min(count, first + block); i++)
          for (int64_t k = 0; k < n; k += 32)
            f.logit_stats(int(std::min<int64_t>(32, n - k)), logits + (i - first) * n + k, bias(a, from + k), own[i],
                          labels[used[i]] - from - k, &stats[i]);
      }
    }
    for (int64_t i = 0; i < count; i++) {
      const double log_sum = std::log(stats[i].sum);
      const int64_t r = used[i];
      lse[r] = float(stats[i].largest + log_sum);
      loss[r] = float(log_sum - (double(own[i]) - stats[i].largest));
      rank[r] = stats[i].higher;
    }
  }
};

struct Backward final : LinearLoss {
  // The kernels of a chunk of n classes.
  struct Chunk {
    Product logits, diff_src;
    std::unique_ptr<Kernel> diff_weights;
    int64_t scratch = 0;

    Chunk(const Request &request, const Products &origin, const Backward &b, int64_t n)
        : logits(request, origin.linear, b.typed({b.block, b.channels}), b.typed({n, b.channels}),
                 make_spec(HT_F32, {b.block, n})),
          diff_src(request, origin.linear, b.typed({b.block, n}), b.typed({b.channels, n}),
                   make_spec(HT_F32, {b.block, b.channels})) {
      const ht_linear_params p{b.biased};
      Specs out = {make_spec(HT_F32, {n, b.channels})};
      if (b.biased) out.push_back(make_spec(HT_F32, {n}));
      diff_weights = origin.diff_weights(
          {HT_LINEAR_DIFF_WEIGHTS, &p, {b.typed({b.block, b.channels}), b.typed({b.block, n})}, out, request.threads});
      for (const ht_spec &s : diff_weights->in)
        if (s.layout != HT_LAYOUT_PLAIN)
          throw Unsupported("matrix product: got " + describe(s) + ", want the plain layout");
    }
    void reserve(Regions &regions) {
      logits.reserve(regions);
      diff_src.reserve(regions);
      scratch = regions.add(diff_weights->workspace);
    }
  };
  std::vector<Chunk> chunks; // a full chunk; the last chunk, if it is smaller
  int64_t logits_at, diff_at, part_at, rounded_at, transposed_at, weights_at, biases_at;

  Backward(const Request &request, const Products &origin) : LinearLoss(request, 5, kBlock) {
    want_operands(request, biased ? 6 : 5, biased ? 3 : 2);
    want_f32(in[3]);
    want_f32(in[4]);
    const int64_t most = std::min(kClasses, classes), word = sizeof(float);
    logits_at = regions.add(block * most * word);
    diff_at = regions.add(up(rows, block) * channels * word);
    part_at = regions.add(block * channels * word);
    rounded_at = regions.add(block * most * size);
    transposed_at = regions.add(channels * most * size);
    weights_at = regions.add(most * channels * word);
    biases_at = regions.add(most * word);
    for (int64_t n : {most, classes % kClasses}) {
      if (n == 0) continue;
      chunks.emplace_back(request, origin, *this, n);
      chunks.back().reserve(regions);
    }
    workspace = regions.end;
  }

  void run(const Args &a) override {
    const TransformerTable &f = transformer();
    char *memory = static_cast<char *>(a.workspace), *diff_src = static_cast<char *>(a.out[0]);
    const auto *used = reinterpret_cast<int32_t *>(memory + used_at);
    auto *diff = reinterpret_cast<float *>(memory + diff_at);
    const int64_t count = gather(a, memory), row = channels * size;
    if (count == 0) {
      for (size_t i = 0; i < out.size(); i++) std::memset(a.out[i], 0, size_t(out[i].bytes));
      return;
    }
    for (int64_t from = 0; from < classes; from += kClasses) {
      const int64_t n = std::min(kClasses, classes - from);
      const Chunk &c = n == kClasses || from == 0 ? chunks.front() : chunks.back();
      void *w = c.logits.pack(memory, weight(a, from));
      if (bf16)
        transpose<uint16_t>(weight(a, from), n, memory + transposed_at);
      else
        transpose<uint32_t>(weight(a, from), n, memory + transposed_at);
      void *wt = c.diff_src.pack(memory, memory + transposed_at);
      for (int64_t first = 0; first < count; first += block) one(a, c, w, wt, from, n, first, count);
    }
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    for (int64_t r = 0; r < rows; r++)
      if (labels[r] < 0) std::memset(diff_src + r * row, 0, size_t(row));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) f.narrow[bf16](channels, diff + i * channels, 1, diff_src + used[i] * row);
  }

  // Transposes the weights of n classes to (C, n).
  template <class T> void transpose(const char *from_, int64_t n, char *to_) const {
    const T *from = reinterpret_cast<const T *>(from_);
    T *to = reinterpret_cast<T *>(to_);
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < channels; c += 16)
      for (int64_t k = 0; k < n; k += 16)
        for (int64_t i = c; i < std::min(channels, c + 16); i++)
          for (int64_t j = k; j < std::min(n, k + 16); j++) to[i * n + j] = from[j * channels + i];
  }

  // Processes one block of rows, from row `first` on, with the n classes from class `from` on.
  void one(const Args &a, const Chunk &c, void *w, void *wt, int64_t from, int64_t n, int64_t first,
           int64_t count) const {
    const TransformerTable &f = transformer();
    char *memory = static_cast<char *>(a.workspace), *x = memory + x_at + first * channels * size;
    char *rounded = bf16 ? memory + rounded_at : memory + logits_at;
    const auto *used = reinterpret_cast<int32_t *>(memory + used_at);
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    const auto *lse = static_cast<const float *>(a.in[3]);
    const float scale = *static_cast<const float *>(a.in[4]);
    auto *logits = reinterpret_cast<float *>(memory + logits_at), *part = reinterpret_cast<float *>(memory + part_at);
    c.logits.run(memory, x, w, logits);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < block; i++) {
      float *line = logits + i * n;
      if (first + i >= count) {
        std::memset(rounded + i * n * size, 0, size_t(n * size));
        continue;
      }
      const int64_t r = used[first + i];
      for (int64_t k = 0; k < n; k += 32)
        f.logit_diff(int(std::min<int64_t>(32, n - k)), line + k, bias(a, from + k), lse[r], scale,
                     labels[r] - from - k);
      if (bf16) f.narrow[1](n, line, 1, rounded + i * n * size);
    }
    auto *diff_weight = static_cast<float *>(a.out[1]) + from * channels;
    auto *diff_bias = biased ? static_cast<float *>(a.out[2]) + from : nullptr;
    auto *weights = reinterpret_cast<float *>(memory + weights_at),
         *biases = reinterpret_cast<float *>(memory + biases_at);
    void *in[] = {x, rounded};
    void *out[] = {first == 0 ? diff_weight : weights, first == 0 ? diff_bias : biases};
    c.diff_weights->run({in, out, memory + c.scratch, nullptr});
    c.diff_src.run(memory, rounded, wt, part);
    float *diff = reinterpret_cast<float *>(memory + diff_at) + first * channels;
    if (from == 0) std::memcpy(diff, part, size_t(block * channels) * sizeof(float));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < std::max(block, n); i++) {
      if (from > 0 && i < block) f.add_row[0](channels, part + i * channels, diff + i * channels);
      if (first > 0 && i < n) f.add_row[0](channels, weights + i * channels, diff_weight + i * channels);
    }
    if (first > 0 && biased) f.add_row[0](n, biases, diff_bias);
  }
};

std::unique_ptr<Kernel> make_forward(const Request &r) { return std::make_unique<Forward>(r, kLibraryProducts); }
std::unique_ptr<Kernel> make_backward(const Request &r) { return std::make_unique<Backward>(r, kLibraryProducts); }

bool has_float_panels(const Request &r) {
  return float_panels() && r.in.size() >= 3 && r.in[0].dtype == HT_F32 && r.in[1].dtype == HT_F32;
}

// Makes the kernels on tiles. The kernels for bf16 keep the logits in registers.
std::unique_ptr<Kernel> make_tiled_forward(const Request &r) {
  return has_float_panels(r) ? std::make_unique<Forward>(r, kPanelProducts) : make_pair_linear_loss(r);
}
std::unique_ptr<Kernel> make_tiled_backward(const Request &r) {
  return has_float_panels(r) ? std::make_unique<Backward>(r, kPanelProducts) : make_pair_linear_loss_diff(r);
}

} // namespace

std::unique_ptr<Kernel> make_linear_cross_entropy(const Request &request) {
  return fastest(request, {kTiles, make_tiled_forward}, {kLibrary, make_forward}, library_has_amx(request));
}

std::unique_ptr<Kernel> make_linear_cross_entropy_diff(const Request &request) {
  return fastest(request, {kTiles, make_tiled_backward}, {kLibrary, make_backward}, library_has_amx(request));
}

std::unique_ptr<Kernel> make_linear_cross_entropy_both(const Request &) {
  throw Unsupported("linear_cross_entropy_both: this device computes the loss and its gradients in two ops");
}

} // namespace hetero
