// embedding.cc: lookup of rows in embedding tables, and the gradient of a table. dst (N, T, C) of the lookup is the sum
// of one row of each table.
//
// The gradient sorts the rows of diff_dst by id. The counting sort keeps the order of rows with the same id. The
// gradient of a table row is the sum of the rows with its id, added in this order for any number of threads. Ids and
// channels are divided among the threads.
#include <algorithm>
#include <cstring>

#include "images.h"
#include "layout.h"
#include "ops.h"
#include "transformer_table.h"

namespace hetero {
namespace {

void want_i32(const char *name, const ht_spec &s) {
  if (s.dtype != HT_I32) throw Invalid(std::string(name) + ": got " + describe(s) + ", want i32");
}

// Checks the ids, which come from device memory. An id outside of the table would access memory outside of the table.
void check_ids(const char *name, const int32_t *ids, int64_t n, int64_t rows) {
  for (int64_t i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= rows)
      throw std::runtime_error(std::string(name) + ": element " + std::to_string(i) + ": got " +
                               std::to_string(ids[i]) + ", want 0 to " + std::to_string(rows - 1));
}

struct Embedding final : Kernel {
  bool bf16;
  int64_t rows, positions, channels;

  explicit Embedding(const Request &request) : bf16(is_bf16(request.out[0])) {
    want_i32("tokens", request.in[0]);
    if (request.in.size() > 3) want_i32("segments", request.in[3]);
    for (size_t i : {1, 2, 4})
      if (i < request.in.size()) want_f32(request.in[i]);
    take_plain(*this, request);
    rows = elements(in[0]);
    positions = in[0].dims[1];
    channels = in[1].dims[1];
  }

  void run(const Args &a) override {
    const auto *tokens = static_cast<const int32_t *>(a.in[0]);
    const auto *segments = static_cast<const int32_t *>(in.size() > 3 ? a.in[3] : nullptr);
    check_ids("tokens", tokens, rows, in[1].dims[0]);
    if (segments) check_ids("segments", segments, rows, in[4].dims[0]);
    const auto table = [&](size_t i, int64_t row) {
      return i < in.size() ? static_cast<const float *>(a.in[i]) + row * channels : nullptr;
    };
    const auto sum = transformer().sum_rows[bf16];
    const int64_t bytes = channels * dtype_size(out[0].dtype);
#pragma omp parallel for schedule(static) if (worth_threads(out[0].bytes))
    for (int64_t r = 0; r < rows; r++)
      sum(channels, table(1, tokens[r]), table(2, r % positions), table(4, segments ? segments[r] : 0),
          static_cast<char *>(a.out[0]) + r * bytes);
  }
};

struct EmbeddingDiff final : Kernel {
  static constexpr int64_t kBlock = 128; // channels of a task, which sums them on the stack
  ht_embedding_params p;
  bool bf16;
  int64_t samples, positions, channels;

  explicit EmbeddingDiff(const Request &request)
      : p(*static_cast<const ht_embedding_params *>(request.params)), bf16(is_bf16(request.in[0])) {
    if (!p.positions) want_i32("ids", request.in[1]);
    want_f32(request.out[0]);
    take_plain(*this, request);
    samples = in[0].dims[0];
    positions = in[0].dims[1];
    channels = in[0].dims[2];
    if (!p.positions) workspace = (p.rows + 1 + samples * positions) * int64_t(sizeof(int32_t));
    if (samples * positions > INT32_MAX)
      throw Unsupported("rows: got " + std::to_string(samples * positions) + ", want at most 2147483647");
  }

  void run(const Args &a) override {
    const int64_t n = samples * positions, rows = p.rows, blocks = (channels + kBlock - 1) / kBlock;
    int32_t *first = static_cast<int32_t *>(a.workspace), *order = first + rows + 1;
    if (!p.positions) sort(static_cast<const int32_t *>(a.in[1]), first, order);
    const int64_t size = dtype_size(in[0].dtype);
    const auto add = transformer().add_row[bf16];
    const auto add_f32 = transformer().add_row[0];
    auto *table = static_cast<float *>(a.out[0]);
#pragma omp parallel for schedule(static) if (worth_threads(n * channels * size))
    for (int64_t task = 0; task < rows * blocks; task++) {
      const int64_t row = task / blocks, from = task % blocks * kBlock, count = std::min(kBlock, channels - from);
      const int64_t begin = p.positions ? 0 : first[row];
      const int64_t end = p.positions ? (row < positions ? samples : 0) : first[row + 1];
      float *to = table + row * channels + from;
      if (begin == end) {
        if (!p.accumulate) std::memset(to, 0, size_t(count) * sizeof(float));
        continue;
      }
      float sums[kBlock] = {};
      for (int64_t i = begin; i < end; i++) {
        const int64_t source = p.positions ? i * positions + row : order[i];
        add(count, static_cast<const char *>(a.in[0]) + (source * channels + from) * size, sums);
      }
      if (p.accumulate)
        add_f32(count, sums, to);
      else
        std::memcpy(to, sums, size_t(count) * sizeof(float));
    }
  }

  // Sorts the rows of diff_dst by id. The rows with id i are at order[first[i]] … order[first[i+1]-1], in ascending
  // order.
  void sort(const int32_t *ids, int32_t *first, int32_t *order) const {
    const int64_t n = samples * positions;
    check_ids("ids", ids, n, p.rows);
    std::fill(first, first + p.rows + 1, 0);
    for (int64_t i = 0; i < n; i++) first[ids[i]]++;
    int32_t end = 0;
    for (int64_t r = 0; r < p.rows; r++) first[r] = end += first[r];
    first[p.rows] = end;
    for (int64_t i = n - 1; i >= 0; i--) order[--first[ids[i]]] = int32_t(i);
  }
};

} // namespace

std::unique_ptr<Kernel> make_embedding(const Request &request) { return std::make_unique<Embedding>(request); }
std::unique_ptr<Kernel> make_embedding_diff(const Request &request) { return std::make_unique<EmbeddingDiff>(request); }

} // namespace hetero
