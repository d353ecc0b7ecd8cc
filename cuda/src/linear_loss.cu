// linear_loss.cu: the cross-entropy of a linear layer over a vocabulary. It holds the logits of a block of rows at a
// time, for all classes.
//
//   logits (B, K) = src (B, C) · weight (K, C)ᵀ        a pass over the logits computes the loss of each row
//   with gradients, the same pass overwrites the logits by their gradient d (B, K), rounded to src's type:
//   diff_src (B, C) = d · weight        diff_weight (K, C) = dᵀ · src, added over blocks in f32
//
// K is the number of classes V, rounded up to kUnit. The products then read and write rows at multiples of 16 bytes,
// and fast algorithms accept them. The weights of the padding are zero, the pass ignores its logits, and d is zero
// there. diff_weight has V rows: one product computes the rows up to a multiple of kUnit, another one the rest.
//
// Logits have src's type if the op computes gradients, and f32 otherwise. The host does not know the number of ignored
// rows when it enqueues a step. The logits of ignored rows are therefore computed, and their gradient is zero.
#include <algorithm>
#include <cmath>

#include "channels.h"
#include "fault.h"
#include "gpu.h"
#include "linear.h"
#include "ops.h"
#include "tile.h"
#include "warp.h"

namespace hetero {
namespace {

constexpr int64_t kUnit = 64;

// Threads of a block, which computes a row at a time, and the most memory for logits. Larger: fewer blocks of rows, for
// each of which diff_weight is read and written again. Smaller: less memory. A GPU never uses more than a sixteenth of
// its memory. gpumodel/device.go has the same numbers. Both are small on the host, where tests have few rows.
#ifdef __CUDACC__
constexpr int kRowThreads = 512;
constexpr int64_t kMostLogits = int64_t{1} << 30, kPartOfMemory = 16;
#else
constexpr int kRowThreads = 64;
constexpr int64_t kMostLogits = 1 << 18, kPartOfMemory = 16;
#endif

// Shared memory of a block besides the row: results of warps.
constexpr int64_t kOwnShared = 1 << 10;

// The exponentials of logits relative to the largest one.
struct Stats {
  float largest, sum; // sum of exp(logit - largest)
};

// exp(x - largest), also if both are -infinity.
__device__ float relative(float x, float largest) { return x == largest ? 1.0f : expf(x - largest); }

// The result depends on neither the order of a and b nor the device, and is NaN if one of them is.
__device__ Stats joined(Stats a, Stats b) {
  const float most = b.largest > a.largest || b.largest != b.largest ? b.largest : a.largest;
  return {most, a.sum * relative(a.largest, most) + b.sum * relative(b.largest, most)};
}

// Operands of the pass over the logits of rows from `first` on.
struct Pass {
  int64_t first, rows, classes, padded; // padded: elements of a row of logits
  const float *bias;                    // nullptr: none
  const int32_t *labels;
  float *loss;
  int32_t *position;
  float *lse;         // nullptr: not wanted
  const float *scale; // only with gradients
  uint64_t *fault;
  bool kept; // a row fits into shared memory, so it is read from memory once, with many bytes in flight
};

template <class T> struct Row {
  static constexpr int V = Pack<T>::size;
  const Pass &p;

  // Returns the logits k to k + V - 1; those of the padding are -infinity.
  __device__ void read(const T *row, int64_t k, float *x) const {
    load_row<V>(row, k, x);
    for (int v = 0; v < V; v++) {
      if (k + v >= p.classes)
        x[v] = -INFINITY;
      else if (p.bias)
        x[v] += p.bias[k + v];
    }
  }
};

// Computes loss, top-k position and log sum exp of rows, and overwrites their logits by the gradient if kGradient.
// A block computes a row: a thread processes every kRowThreads-th pack of the row, so sums have a fixed order.
template <class T, bool kGradient> __global__ void __launch_bounds__(kRowThreads) classify(Pass p, T *logits) {
  constexpr int V = Pack<T>::size, kWarps = kRowThreads / 32;
  __shared__ Stats stats_of[kWarps];
  __shared__ int higher_of[kWarps];
  static_assert(sizeof stats_of + sizeof higher_of <= kOwnShared, "a row and the results of warps share the memory");
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const Row<T> from{p};
  for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    T *const row = logits + r * p.padded;
    const int32_t label = p.labels[p.first + r];
    const bool used = label >= 0 && label < p.classes;
    if (thread == 0 && label >= p.classes) mark(p.fault, p.first + r, label);
    const T *source = row;
    Stats stats{-INFINITY, 0};
    int higher = 0; // number of classes that score higher than the label
    float own = 0;
    if (used) {
      own = load(row + label) + (p.bias ? p.bias[label] : 0.0f);
      if (p.kept) { // each thread copies the packs that it reads
        source = reinterpret_cast<const T *>(dynamic_shared());
        for (int64_t k = int64_t{V} * thread; k < p.padded; k += V * kRowThreads)
          copy16(dynamic_shared() + k * int64_t{sizeof(T)}, row + k, true);
        end_copies();
        await_copies<0>();
      }
      for (int64_t k = int64_t{V} * thread; k < p.padded; k += V * kRowThreads) {
        float x[V], most = stats.largest;
        from.read(source, k, x);
        for (int v = 0; v < V; v++) {
          most = x[v] > most || x[v] != x[v] ? x[v] : most; // NaN stays NaN
          higher += x[v] > own || (x[v] == own && k + v < label);
        }
        if (most == -INFINITY) continue;
        stats.sum *= relative(stats.largest, most);
        stats.largest = most;
        for (int v = 0; v < V; v++) stats.sum += expf(x[v] - most);
      }
      for (int step = 16; step > 0; step /= 2) {
        stats = joined(stats, {__shfl_xor_sync(kAll, stats.largest, step), __shfl_xor_sync(kAll, stats.sum, step)});
        higher += __shfl_xor_sync(kAll, higher, step);
      }
      if (lane == 0) stats_of[warp] = stats, higher_of[warp] = higher;
    }
    __syncthreads();
    if (used) {
      stats = lane < kWarps ? stats_of[lane] : Stats{-INFINITY, 0};
      higher = lane < kWarps ? higher_of[lane] : 0;
      for (int step = 16; step > 0; step /= 2) {
        stats = joined(stats, {__shfl_xor_sync(kAll, stats.largest, step), __shfl_xor_sync(kAll, stats.sum, step)});
        higher += __shfl_xor_sync(kAll, higher, step);
      }
    }
    const float log_sum = logf(stats.sum), lse = stats.largest + log_sum;
    if (thread == 0) {
      const int64_t at = p.first + r;
      p.loss[at] = used ? log_sum - (own - stats.largest) : label < 0 ? 0.0f : NAN;
      p.position[at] = used ? higher : -1;
      if (p.lse) p.lse[at] = used ? lse : 0.0f;
    }
    if (kGradient) {
      const float factor = *p.scale;
      for (int64_t k = int64_t{V} * thread; k < p.padded; k += V * kRowThreads) {
        float x[V] = {};
        if (used) {
          from.read(source, k, x);
          for (int v = 0; v < V; v++)
            x[v] = k + v < p.classes ? (expf(x[v] - lse) - (k + v == label ? 1.0f : 0.0f)) * factor : 0.0f;
        }
        store_row<V>(row, k, x);
      }
    }
    __syncthreads(); // before the next row overwrites the results of warps
  }
}

__global__ void add_to(int64_t n, const float *src, float *dst) {
  for (int64_t i = first_index(); i < n; i += index_stride()) dst[i] += src[i];
}

int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

void run(const std::unique_ptr<Kernel> &kernel, void *a, void *b, void *dst, void *other, void *workspace,
         void *queue) {
  void *in[] = {a, b}, *out[] = {dst, other};
  kernel->run({in, out, workspace, queue});
}

void copy_floats(int64_t n, const float *from, float *to, void *queue) {
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(n) * sizeof(float), cudaMemcpyDeviceToDevice,
                        static_cast<cudaStream_t>(queue)),
        "copy rows of a gradient");
}

// The sizes of an op.
struct Sizes {
  int64_t rows, channels, classes;
  int32_t dtype, logits; // types of src and of the logits
  bool biased;

  int64_t padded() const { return up(classes, kUnit); }
  int64_t whole() const { return classes / kUnit * kUnit; } // classes before the last unit, if that has padding
  int64_t rest() const { return classes - whole(); }
  int64_t row_bytes() const { return padded() * dtype_size(logits); }
  // Rows of a block, the same in all blocks but the last: as few blocks as fit into the memory for logits. All blocks
  // begin at a multiple of kUnit rows, so their addresses in src and diff_src are as aligned as those of the operands.
  int64_t rows_of_block() const {
    const int64_t memory = static_cast<int64_t>(device_facts().totalGlobalMem) / kPartOfMemory;
    const int64_t most = std::max(std::min(kMostLogits, memory) / row_bytes() / kUnit * kUnit, kUnit);
    const int64_t blocks = (rows + most - 1) / most;
    return std::min(up((rows + blocks - 1) / blocks, kUnit), rows);
  }
};

// The products of a block of `rows` rows.
struct Products {
  int64_t rows;
  std::unique_ptr<Kernel> logits, diff_src;
  // Gradients of the classes before `whole` and of the rest, of the first block ([0]) and added to those of earlier
  // blocks ([1]); nullptr if there are no such classes.
  std::unique_ptr<Kernel> diff_whole[2], diff_rest[2];

  Products(const Sizes &s, int64_t rows, bool first, bool later, bool gradient) : rows(rows) {
    const ht_spec src = make_spec(s.dtype, {rows, s.channels}), weight = make_spec(s.dtype, {s.padded(), s.channels}),
                  d = make_spec(s.dtype, {rows, s.padded()});
    const ht_linear_params none{};
    logits = make_linear({HT_LINEAR, &none, {src, weight}, {make_spec(s.logits, {rows, s.padded()})}, 0});
    if (!gradient) return;
    diff_src = make_linear_diff_src({HT_LINEAR_DIFF_SRC, &none, {d, weight}, {src}, 0});
    for (int add = 0; add < 2; add++) {
      if (!(add ? later : first)) continue;
      if (s.whole()) diff_whole[add] = diff_weight(s, s.whole(), add);
      if (s.rest()) diff_rest[add] = diff_weight(s, kUnit, add);
    }
  }

  std::unique_ptr<Kernel> diff_weight(const Sizes &s, int64_t classes, bool add) const {
    const ht_linear_params p{s.biased};
    Specs out = {make_spec(HT_F32, {classes, s.channels})};
    if (s.biased) out.push_back(make_spec(HT_F32, {classes}));
    return make_linear_diff_weights({HT_LINEAR_DIFF_WEIGHTS,
                                     &p,
                                     {make_spec(s.dtype, {rows, s.channels}), make_spec(s.dtype, {rows, classes})},
                                     out,
                                     0},
                                    s.padded(), add);
  }

  int64_t workspace() const {
    int64_t most = 0;
    for (const Kernel *k : {logits.get(), diff_src.get(), diff_whole[0].get(), diff_whole[1].get(), diff_rest[0].get(),
                            diff_rest[1].get()})
      if (k) most = std::max(most, k->workspace);
    return most;
  }
};

// Both ops: the loss, with or without gradients.
template <class T, bool kGradient> struct LinearLoss final : Kernel {
  using Logit = std::conditional_t<kGradient, T, float>;
  Sizes size;
  int64_t block;                  // rows of all blocks but the last
  std::vector<Products> products; // of the blocks but the last, and of the last one if it is smaller
  int64_t logits_at, weight_at = 0, rest_at = 0, bias_at = 0, scratch_at; // offsets in the workspace
  int shared = 0;                                                         // bytes that keep a row; 0: not kept
  Fault bad;

  explicit LinearLoss(const Request &request)
      : bad([classes = request.in[1].dims[0]](int64_t i, int64_t got) {
          return "linear_cross_entropy: label " + std::to_string(i) + ": got " + std::to_string(got) +
                 ", want below the " + std::to_string(classes) + " classes";
        }) {
    constexpr size_t kInputs = kGradient ? 4 : 3, kOutputs = kGradient ? 4 : 3;
    const bool biased = request.in.size() > kInputs;
    want_operands(request, kInputs + biased, kOutputs + (kGradient && biased));
    take_plain(*this, request);
    if (in[1].dtype != in[0].dtype) throw Invalid("weight: got " + describe(in[1]) + ", want src's type");
    if (in[2].dtype != HT_I32) throw Invalid("labels: got " + describe(in[2]) + ", want i32");
    for (size_t i = 3; i < in.size(); i++) want_f32(in[i]);
    size = {in[0].dims[0], in[0].dims[1], in[1].dims[0], in[0].dtype, kGradient ? in[0].dtype : HT_F32, biased};
    if (size.rows > INT32_MAX)
      throw Unsupported("rows: got " + std::to_string(size.rows) + ", want at most 2147483647");
    block = size.rows_of_block();
    products.emplace_back(size, block, true, 2 * block <= size.rows, kGradient);
    if (size.rows % block) products.emplace_back(size, size.rows % block, false, true, kGradient);
    logits_at = reserve(block * size.row_bytes());
    if (size.rest()) weight_at = reserve(size.padded() * size.channels * dtype_size(size.dtype));
    if (kGradient) {
      if (size.rest()) rest_at = reserve(kUnit * size.channels * int64_t{sizeof(float)});
      if (biased) bias_at = reserve((size.whole() + 2 * kUnit) * int64_t{sizeof(float)});
      const cudaDeviceProp facts = device_facts();
      const int64_t most = static_cast<int64_t>(facts.sharedMemPerBlockOptin) - kOwnShared;
      if (10 * facts.major + facts.minor >= kTensorArch && size.row_bytes() <= most)
        shared = static_cast<int>(size.row_bytes());
    }
    int64_t scratch = 0;
    for (const Products &p : products) scratch = std::max(scratch, p.workspace());
    scratch_at = reserve(scratch);
  }

  void run(const Args &x) override {
    auto *logits = reinterpret_cast<Logit *>(memory(x, logits_at));
    void *weight = x.in[1];
    if (size.rest()) {
      const Block from{size.dtype, 1, size.classes, size.channels, true},
          to{size.dtype, 1, size.padded(), size.channels, true};
      weight = memory(x, weight_at);
      refit(from, x.in[1], to, weight, nullptr, x.queue);
    }
    Pass pass{0,
              0,
              size.classes,
              size.padded(),
              bias(x),
              static_cast<const int32_t *>(x.in[2]),
              static_cast<float *>(x.out[0]),
              static_cast<int32_t *>(x.out[1]),
              kGradient ? nullptr : static_cast<float *>(x.out[2]),
              kGradient ? static_cast<const float *>(x.in[3]) : nullptr,
              bad.word(),
              shared > 0};
    for (int64_t r = 0; r < size.rows; r += block) {
      const Products &p = size.rows - r < block ? products.back() : products.front();
      void *src = static_cast<char *>(x.in[0]) + r * size.channels * dtype_size(size.dtype);
      hetero::run(p.logits, src, weight, logits, nullptr, memory(x, scratch_at), x.queue);
      pass.first = r, pass.rows = p.rows;
      launch(classify<Logit, kGradient>, Grid{p.rows, 1, 1, kRowThreads, shared}, x.queue, pass, logits);
      if (kGradient) gradients(x, p, r, src, weight, logits);
    }
    if (kGradient && size.rest()) {
      copy_floats(size.rest() * size.channels, floats(x, rest_at), out(x, 3) + size.whole() * size.channels, x.queue);
      if (size.biased) copy_floats(size.rest(), floats(x, bias_at), out(x, 4) + size.whole(), x.queue);
    }
  }

private:
  // Reserves `bytes` of the workspace, and returns their offset.
  int64_t reserve(int64_t bytes) {
    const int64_t at = workspace;
    workspace += up(bytes, 64);
    return at;
  }
  char *memory(const Args &x, int64_t at) const { return static_cast<char *>(x.workspace) + at; }
  float *floats(const Args &x, int64_t at) const { return reinterpret_cast<float *>(memory(x, at)); }
  static float *out(const Args &x, int i) { return static_cast<float *>(x.out[i]); }
  const float *bias(const Args &x) const {
    return size.biased ? static_cast<const float *>(x.in[kGradient ? 4 : 3]) : nullptr;
  }

  // Computes the gradients of the block of rows from r on. The products do not add to sums of a bias, so kernels add
  // the sums of later blocks. In the workspace, the sums are: of the rest (kUnit), of a later block (all classes).
  void gradients(const Args &x, const Products &p, int64_t r, void *src, void *weight, void *d) {
    void *scratch = memory(x, scratch_at),
         *diff_src = static_cast<char *>(x.out[2]) + r * size.channels * dtype_size(size.dtype);
    hetero::run(p.diff_src, d, weight, diff_src, nullptr, scratch, x.queue);
    const bool add = r > 0;
    float *const rest_bias = floats(x, bias_at), *const later = rest_bias + kUnit;
    struct {
      const std::unique_ptr<Kernel> &kernel;
      int64_t from, classes;
      float *weight, *bias;
    } const parts[] = {{p.diff_whole[add], 0, size.whole(), out(x, 3), size.biased ? out(x, 4) : nullptr},
                       {p.diff_rest[add], size.whole(), kUnit, floats(x, rest_at), size.biased ? rest_bias : nullptr}};
    for (const auto &part : parts) {
      if (!part.kernel) continue;
      hetero::run(part.kernel, src, static_cast<T *>(d) + part.from, part.weight, add && part.bias ? later : part.bias,
                  scratch, x.queue);
      if (add && part.bias) launch(add_to, over(part.classes), x.queue, part.classes, later, part.bias);
    }
  }
};

template <bool kGradient> std::unique_ptr<Kernel> make(const Request &request) {
  return with_float(request.in[0], [&](auto type) -> std::unique_ptr<Kernel> {
    return std::make_unique<LinearLoss<decltype(type), kGradient>>(request);
  });
}

} // namespace

std::unique_ptr<Kernel> make_linear_cross_entropy(const Request &request) { return make<false>(request); }

std::unique_ptr<Kernel> make_linear_cross_entropy_both(const Request &request) { return make<true>(request); }

std::unique_ptr<Kernel> make_linear_cross_entropy_diff(const Request &) {
  throw Unsupported("linear_cross_entropy_diff: this device computes the gradients together with the loss");
}

} // namespace hetero
