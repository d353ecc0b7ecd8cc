// layernorm.cc: LayerNorm and BiasGELU, with their gradients, on rows of C channels.
//
// Gradients of parameters are sums over rows. The rows are divided into a fixed number of pieces, which does not depend
// on the number of threads. Each piece has its own sums, which are then added in order. The loops are in
// transformer_simd.h.
#include <algorithm>
#include <cstring>

#include "images.h"
#include "layout.h"
#include "ops.h"
#include "pair_product.h"
#include "transformer_table.h"

namespace hetero {
namespace {

constexpr int64_t kPieces = 32;

char *at(void *a, int64_t byte) { return static_cast<char *>(a) + byte; }

struct RowKernel : Kernel {
  bool bf16;
  int64_t rows, channels, row_bytes;

  explicit RowKernel(const Request &request) : bf16(is_bf16(request.in[0])) {
    take_plain(*this, request);
    channels = in[0].dims[in[0].ndim - 1];
    rows = elements(in[0]) / channels;
    row_bytes = channels * dtype_size(in[0].dtype);
  }

  // Calls f(row, sums) for all rows. sums contains `count` arrays of C sums, for the piece to which the row belongs.
  // Then the sums of all pieces are added and written to out[first], out[first + 1], ….
  template <class F> void sum_pieces(const Args &a, int count, size_t first, F f) const {
    auto *sums = static_cast<float *>(a.workspace);
    const int64_t piece = count * channels;
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t i = 0; i < kPieces; i++) {
      std::memset(sums + i * piece, 0, size_t(piece) * sizeof(float));
      for (int64_t r = rows * i / kPieces; r < rows * (i + 1) / kPieces; r++) f(r, sums + i * piece);
    }
    const auto add = transformer().add_row[0];
    for (int64_t i = 1; i < kPieces; i++) add(piece, sums + i * piece, sums);
    for (int o = 0; o < count; o++)
      std::memcpy(a.out[first + size_t(o)], sums + o * channels, size_t(channels) * sizeof(float));
  }
};

struct LayerNorm final : RowKernel {
  bool add;
  float eps;

  explicit LayerNorm(const Request &request) : RowKernel(request) {
    const auto &p = *static_cast<const ht_layer_norm_params *>(request.params);
    add = p.add;
    eps = float(p.eps);
    want_operands(request, add ? 4 : 3, add ? 4 : 3);
    want_f32(in[1]);
    want_f32(in[2]);
    if (add) inplace = {{3, 0}, {3, 3}};
  }

  void run(const Args &a) override {
    const auto normalize = transformer().normalize[bf16];
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t r = 0; r < rows; r++)
      normalize(channels, at(a.in[0], r * row_bytes), add ? at(a.in[3], r * row_bytes) : nullptr,
                static_cast<const float *>(a.in[1]), static_cast<const float *>(a.in[2]), eps,
                at(a.out[0], r * row_bytes), add ? at(a.out[3], r * row_bytes) : nullptr,
                static_cast<float *>(a.out[1]) + r, static_cast<float *>(a.out[2]) + r);
  }
};

struct LayerNormDiff final : RowKernel {
  bool plus;

  explicit LayerNormDiff(const Request &request) : RowKernel(request) {
    plus = static_cast<const ht_layer_norm_params *>(request.params)->plus;
    want_operands(request, plus ? 6 : 5, 3);
    want_f32(in[4]);
    workspace = kPieces * 2 * channels * int64_t(sizeof(float));
    inplace = {{0, 0}};
    if (plus) inplace.push_back({0, 5});
  }

  void run(const Args &a) override {
    const auto diff = transformer().normalize_diff[bf16];
    sum_pieces(a, 2, 1, [&](int64_t r, float *sums) {
      diff(channels, at(a.in[0], r * row_bytes), at(a.in[1], r * row_bytes), static_cast<const float *>(a.in[2])[r],
           static_cast<const float *>(a.in[3])[r], static_cast<const float *>(a.in[4]),
           plus ? at(a.in[5], r * row_bytes) : nullptr, at(a.out[0], r * row_bytes), sums, sums + channels);
    });
  }
};

bool is_tanh(const Request &request) {
  const int func = static_cast<const ht_elementwise_params *>(request.params)->func;
  if (func != HT_GELU && func != HT_GELU_TANH)
    throw Invalid("function: got " + std::to_string(func) + ", want " + std::to_string(HT_GELU) + " (GELU) or " +
                  std::to_string(HT_GELU_TANH) + " (GELU with tanh)");
  return func == HT_GELU_TANH;
}

struct BiasGelu final : RowKernel {
  bool tanh;

  explicit BiasGelu(const Request &request) : RowKernel(request), tanh(is_tanh(request)) {
    want_f32(in[1]);
    inplace = {{0, 0}};
  }

  void run(const Args &a) override {
    const PairTable *pairs = bf16 ? pair_table() : nullptr;
    const auto f = pairs ? pairs->bias_gelu[tanh] : transformer().bias_gelu[bf16][tanh];
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t r = 0; r < rows; r++)
      f(channels, at(a.in[0], r * row_bytes), static_cast<const float *>(a.in[1]), at(a.out[0], r * row_bytes));
  }
};

struct BiasGeluDiff final : RowKernel {
  bool tanh;

  explicit BiasGeluDiff(const Request &request) : RowKernel(request), tanh(is_tanh(request)) {
    want_f32(in[2]);
    workspace = kPieces * channels * int64_t(sizeof(float));
    inplace = {{0, 0}, {0, 1}};
  }

  void run(const Args &a) override {
    const PairTable *pairs = bf16 ? pair_table() : nullptr;
    const auto f = pairs ? pairs->bias_gelu_diff[tanh] : transformer().bias_gelu_diff[bf16][tanh];
    sum_pieces(a, 1, 1, [&](int64_t r, float *sums) {
      f(channels, at(a.in[0], r * row_bytes), at(a.in[1], r * row_bytes), static_cast<const float *>(a.in[2]),
        at(a.out[0], r * row_bytes), sums);
    });
  }
};

} // namespace

std::unique_ptr<Kernel> make_layer_norm(const Request &request) { return std::make_unique<LayerNorm>(request); }
std::unique_ptr<Kernel> make_layer_norm_diff(const Request &request) {
  return std::make_unique<LayerNormDiff>(request);
}
std::unique_ptr<Kernel> make_bias_gelu(const Request &request) { return std::make_unique<BiasGelu>(request); }
std::unique_ptr<Kernel> make_bias_gelu_diff(const Request &request) { return std::make_unique<BiasGeluDiff>(request); }

} // namespace hetero
