// linear_loss.cu: the cross-entropy of a linear layer over a vocabulary, whose logits are computed in parts.
//
// A part consists of the logits of a block of rows for a chunk of classes. Its products are those of the ops of linear
// layers:
//
//   logits (B, K) = src (B, C) · weight (K, C)ᵀ        forward: adds to the statistics of each row
//   backward, with d (B, K) the gradient of logits, rounded to src's type, in the memory of the logits:
//   diff_src (B, C) = d · weight, added over chunks in f32     diff_weight (K, C) = dᵀ · src, added over blocks
//
// The host does not know the number of ignored rows when it enqueues a step. The logits of ignored rows are therefore
// computed, and their gradient is zero.
#include <algorithm>
#include <cmath>

#include "channels.h"
#include "fault.h"
#include "gpu.h"
#include "linear.h"
#include "ops.h"
#include "warp.h"

namespace hetero {
namespace {

// Rows and classes of a part. Larger: a larger workspace (f32 logits: 128 MiB on a GPU). Smaller: smaller products, and
// gradients are added more often. Small on the host, where tests have few rows and classes. Both are multiples of 16,
// so the addresses of parts are as aligned as those of the operands.
#ifdef __CUDACC__
constexpr int64_t kRows = 8192, kClasses = 4096;
#else
constexpr int64_t kRows = 256, kClasses = 1024;
#endif

struct Stats {
  float largest, sum, own; // largest logit; sum of exp(logit - largest); logit of the label
  int32_t higher;          // number of classes so far that score higher than the label
};

// Returns whether the row's label is a class. A negative label means that the row is ignored; a label beyond the
// classes is a fault.
__device__ bool counts(int32_t label, int64_t classes, int64_t row, uint64_t *fault) {
  if (label < classes) return label >= 0;
  if (fault) mark(fault, row, label);
  return false;
}

// Computes the logit of each row's own label. The order of its sum differs from that of the product. If the scores of a
// class and the label are equal except for rounding, the label's position among the classes may therefore differ
// between devices.
template <class T>
__global__ void begin(int64_t rows, int64_t channels, int64_t classes, const T *src, const T *weight,
                      const int32_t *labels, const float *bias, uint64_t *fault, Stats *stats) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  for (int64_t r = first_index() / 32; r < rows; r += warps) {
    const int32_t label = labels[r];
    float own = 0;
    if (counts(label, classes, r, lane == 0 ? fault : nullptr))
      for (int64_t c = lane; c < channels; c += 32)
        own += load(src + r * channels + c) * load(weight + label * channels + c);
    own = warp_sum(own);
    if (lane > 0) continue;
    if (bias && label >= 0 && label < classes) own += bias[label];
    stats[r] = {-INFINITY, 0, own, 0};
  }
}

// Adds the logits (rows, n) of classes from `from` on to the statistics of rows. A warp processes a row.
__global__ void gather(int64_t rows, int64_t from, int64_t n, const float *logits, const float *bias,
                       const int32_t *labels, Stats *stats) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  for (int64_t r = first_index() / 32; r < rows; r += warps) {
    const int64_t label = labels[r];
    if (label < 0) continue;
    const float *row = logits + r * n;
    const Stats before = stats[r];
    float most = before.largest;
    for (int64_t k = lane; k < n; k += 32) {
      const float x = bias ? row[k] + bias[from + k] : row[k];
      most = x > most || x != x ? x : most; // NaN stays NaN
    }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(kAll, most, step);
      most = other > most || other != other ? other : most;
    }
    float sum = 0;
    int32_t higher = 0;
    for (int64_t k = lane; k < n; k += 32) {
      const float x = bias ? row[k] + bias[from + k] : row[k];
      sum += expf(x - most);
      higher += from + k != label && (x > before.own || (x == before.own && from + k < label));
    }
    sum = warp_sum(sum);
    for (int step = 16; step > 0; step /= 2) higher += __shfl_xor_sync(kAll, higher, step);
    if (lane > 0) continue;
    const float old = before.sum == 0 ? 0 : before.sum * expf(before.largest - most);
    stats[r] = {most, old + sum, before.own, before.higher + higher};
  }
}

__global__ void finish(int64_t rows, int64_t classes, const int32_t *labels, const Stats *stats, float *loss,
                       int32_t *position, float *lse) {
  for (int64_t r = first_index(); r < rows; r += index_stride()) {
    const int32_t label = labels[r];
    const Stats s = stats[r];
    const float log_sum = logf(s.sum);
    loss[r] = label < 0 ? 0 : label < classes ? log_sum - (s.own - s.largest) : NAN;
    position[r] = label < 0 ? -1 : s.higher;
    lse[r] = label < 0 ? 0 : s.largest + log_sum;
  }
}

// The distance between two rows of n logits in memory, in elements of `size` bytes.
__host__ __device__ int64_t stride_of(int64_t n, int64_t size) { return n * int64_t{sizeof(float)} / size; }

// Overwrites logits (rows, n) by their gradient in type T: row r of the gradient begins where row r of the logits
// begins. A warp processes a row. It reads 32 logits before it writes 32 gradients, which are not longer.
template <class T>
__global__ void diff_logits(int64_t first, int64_t rows, int64_t from, int64_t n, int64_t classes, float *logits,
                            const float *bias, const int32_t *labels, const float *lse, const float *scale,
                            uint64_t *fault) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  const float factor = *scale;
  for (int64_t r = first_index() / 32; r < rows; r += warps) {
    const int32_t label = labels[r];
    const bool used = counts(label, classes, first + r, lane == 0 ? fault : nullptr);
    const float l = lse[r], *row = logits + r * n;
    T *const d = reinterpret_cast<T *>(logits) + r * stride_of(n, sizeof(T));
    for (int64_t begin = 0; begin < n; begin += 32) {
      const int64_t k = begin + lane;
      float x = k < n ? row[k] : 0;
      __syncwarp();
      if (k >= n) continue;
      if (bias) x += bias[from + k];
      store(d + k, used ? (expf(x - l) - (from + k == label ? 1.0f : 0.0f)) * factor : 0);
    }
  }
}

__global__ void add_to(int64_t n, const float *src, float *dst) {
  for (int64_t i = first_index(); i < n; i += index_stride()) dst[i] += src[i];
}

int64_t up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

void run(const std::unique_ptr<Kernel> &kernel, void *a, void *b, void *dst, void *other, void *workspace,
         void *queue) {
  void *in[] = {a, b}, *out[] = {dst, other};
  kernel->run({in, out, workspace, queue});
}

// The products of a part of `rows` rows and `classes` classes.
struct Part {
  int64_t rows, classes;
  std::unique_ptr<Kernel> logits, diff_src, diff_weight;

  Part(int64_t rows, int64_t classes, int64_t channels, int32_t dtype, bool backward, bool biased)
      : rows(rows), classes(classes) {
    const ht_spec src = make_spec(dtype, {rows, channels}), weight = make_spec(dtype, {classes, channels}),
                  d = make_spec(dtype, {rows, classes});
    const ht_linear_params none{}, p{biased};
    logits = make_linear({HT_LINEAR, &none, {src, weight}, {make_spec(HT_F32, {rows, classes})}, 0});
    if (!backward) return;
    const int64_t stride = stride_of(classes, dtype_size(dtype));
    diff_src = make_linear_diff_src({HT_LINEAR_DIFF_SRC, &none, {d, weight}, {make_spec(HT_F32, {rows, channels})}, 0},
                                    stride);
    Specs out = {make_spec(HT_F32, {classes, channels})};
    if (biased) out.push_back(make_spec(HT_F32, {classes}));
    diff_weight = make_linear_diff_weights({HT_LINEAR_DIFF_WEIGHTS, &p, {src, d}, out, 0}, stride);
  }
  int64_t workspace() const {
    int64_t most = logits->workspace;
    if (diff_src) most = std::max({most, diff_src->workspace, diff_weight->workspace});
    return most;
  }
};

struct LinearLoss : Kernel {
  int64_t rows, channels, classes, size;
  int32_t dtype;
  bool biased;
  size_t bias_at;
  std::vector<Part> parts; // at most four: the last block of rows and the last chunk of classes may be smaller
  int64_t scratch_at = 0;  // offset in the workspace
  Fault bad;

  LinearLoss(const Request &request, size_t inputs, bool backward)
      : biased(request.in.size() > inputs), bias_at(inputs),
        bad([classes = request.in[1].dims[0]](int64_t i, int64_t got) {
          return "linear_cross_entropy: label " + std::to_string(i) + ": got " + std::to_string(got) +
                 ", want below the " + std::to_string(classes) + " classes";
        }) {
    take_plain(*this, request);
    if (in[1].dtype != in[0].dtype) throw Invalid("weight: got " + describe(in[1]) + ", want src's type");
    if (in[2].dtype != HT_I32) throw Invalid("labels: got " + describe(in[2]) + ", want i32");
    if (biased) want_f32(in[bias_at]);
    rows = in[0].dims[0];
    channels = in[0].dims[1];
    classes = in[1].dims[0];
    dtype = in[0].dtype;
    size = dtype_size(dtype);
    if (rows > INT32_MAX) throw Unsupported("rows: got " + std::to_string(rows) + ", want at most 2147483647");
    for (int64_t r : {std::min(kRows, rows), rows > kRows ? rows % kRows : 0})
      for (int64_t c : {std::min(kClasses, classes), classes > kClasses ? classes % kClasses : 0})
        if (r && c) parts.emplace_back(r, c, channels, dtype, backward, biased);
  }

  // Reserves `bytes` of the workspace, and returns their offset.
  int64_t reserve(int64_t bytes) {
    const int64_t at = workspace;
    workspace += up(bytes);
    return at;
  }
  void reserve_scratch() {
    int64_t most = 0;
    for (const Part &p : parts) most = std::max(most, p.workspace());
    scratch_at = reserve(most);
  }
  const Part &part(int64_t r, int64_t c) const {
    for (const Part &p : parts)
      if (p.rows == std::min(kRows, rows - r) && p.classes == std::min(kClasses, classes - c)) return p;
    throw std::logic_error("no kernels for a block of " + std::to_string(rows - r) + " rows and " +
                           std::to_string(classes - c) + " classes");
  }
  char *src(const Args &x, int64_t r) const { return static_cast<char *>(x.in[0]) + r * channels * size; }
  char *weight(const Args &x, int64_t c) const { return static_cast<char *>(x.in[1]) + c * channels * size; }
  const int32_t *labels(const Args &x) const { return static_cast<const int32_t *>(x.in[2]); }
  const float *bias(const Args &x) const { return biased ? static_cast<const float *>(x.in[bias_at]) : nullptr; }
  char *memory(const Args &x, int64_t at) const { return static_cast<char *>(x.workspace) + at; }
};

template <class T> struct Forward final : LinearLoss {
  int64_t logits_at, stats_at;

  explicit Forward(const Request &request) : LinearLoss(request, 3, false) {
    want_operands(request, biased ? 4 : 3, 3);
    logits_at = reserve(parts[0].rows * parts[0].classes * int64_t{sizeof(float)});
    stats_at = reserve(rows * int64_t{sizeof(Stats)});
    reserve_scratch();
  }

  void run(const Args &x) override {
    auto *logits = reinterpret_cast<float *>(memory(x, logits_at));
    auto *stats = reinterpret_cast<Stats *>(memory(x, stats_at));
    launch(begin<T>, over(rows * 32), x.queue, rows, channels, classes, static_cast<const T *>(x.in[0]),
           static_cast<const T *>(x.in[1]), labels(x), bias(x), bad.word(), stats);
    for (int64_t r = 0; r < rows; r += kRows)
      for (int64_t c = 0; c < classes; c += kClasses) {
        const Part &p = part(r, c);
        hetero::run(p.logits, src(x, r), weight(x, c), logits, nullptr, memory(x, scratch_at), x.queue);
        launch(gather, over(p.rows * 32), x.queue, p.rows, c, p.classes, logits, bias(x), labels(x) + r, stats + r);
      }
    launch(finish, over(rows), x.queue, rows, classes, labels(x), stats, static_cast<float *>(x.out[0]),
           static_cast<int32_t *>(x.out[1]), static_cast<float *>(x.out[2]));
  }
};

template <class T> struct Backward final : LinearLoss {
  int64_t logits_at, sums_at, part_at, bias_part_at;
  static constexpr bool kWide = std::is_same<T, float>::value;

  explicit Backward(const Request &request) : LinearLoss(request, 5, true) {
    want_operands(request, biased ? 6 : 5, biased ? 3 : 2);
    want_f32(in[3]);
    want_f32(in[4]);
    const int64_t word = sizeof(float), r = parts[0].rows, c = parts[0].classes;
    logits_at = reserve(r * c * word);
    sums_at = reserve(kWide ? 0 : r * channels * word);
    part_at = reserve(std::max(r, c) * channels * word);
    bias_part_at = reserve(c * word);
    reserve_scratch();
  }

  void run(const Args &x) override {
    auto *logits = reinterpret_cast<float *>(memory(x, logits_at)),
         *part_sums = reinterpret_cast<float *>(memory(x, part_at)),
         *bias_part = reinterpret_cast<float *>(memory(x, bias_part_at));
    char *scratch = memory(x, scratch_at);
    const auto *lse = static_cast<const float *>(x.in[3]), *scale = static_cast<const float *>(x.in[4]);
    for (int64_t r = 0; r < rows; r += kRows) {
      char *diff_src = static_cast<char *>(x.out[0]) + r * channels * size;
      auto *sums = kWide ? reinterpret_cast<float *>(diff_src) : reinterpret_cast<float *>(memory(x, sums_at));
      for (int64_t c = 0; c < classes; c += kClasses) {
        const Part &p = part(r, c);
        hetero::run(p.logits, src(x, r), weight(x, c), logits, nullptr, scratch, x.queue);
        launch(diff_logits<T>, over(p.rows * 32), x.queue, r, p.rows, c, p.classes, classes, logits, bias(x),
               labels(x) + r, lse + r, scale, bad.word());
        hetero::run(p.diff_src, logits, weight(x, c), c == 0 ? sums : part_sums, nullptr, scratch, x.queue);
        if (c > 0) launch(add_to, over(p.rows * channels), x.queue, p.rows * channels, part_sums, sums);
        auto *diff_weight = static_cast<float *>(x.out[1]) + c * channels;
        auto *diff_bias = biased ? static_cast<float *>(x.out[2]) + c : nullptr;
        const bool first = r == 0;
        hetero::run(p.diff_weight, src(x, r), logits, first ? diff_weight : part_sums, first ? diff_bias : bias_part,
                    scratch, x.queue);
        if (first) continue;
        launch(add_to, over(p.classes * channels), x.queue, p.classes * channels, part_sums, diff_weight);
        if (biased) launch(add_to, over(p.classes), x.queue, p.classes, bias_part, diff_bias);
      }
      if (!kWide) cast(std::min(kRows, rows - r) * channels, HT_F32, sums, dtype, diff_src, x.queue);
    }
  }
};

} // namespace

std::unique_ptr<Kernel> make_linear_cross_entropy(const Request &request) {
  return with_float(request.in[0], [&](auto type) -> std::unique_ptr<Kernel> {
    return std::make_unique<Forward<decltype(type)>>(request);
  });
}

std::unique_ptr<Kernel> make_linear_cross_entropy_diff(const Request &request) {
  return with_float(request.in[0], [&](auto type) -> std::unique_ptr<Kernel> {
    return std::make_unique<Backward<decltype(type)>>(request);
  });
}

} // namespace hetero
