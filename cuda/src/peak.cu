// peak.cu: measures the limits of a GPU. The memory bandwidth is that of kernels that move 16 bytes at a time. The f32
// rate is that of multiply-adds in registers. The bf16 and f16 rates are those of a large product with cuBLASLt, which
// tensor cores reach in practice.
#include "peak.h"

#include <algorithm>

#include "choices.h"
#include "clock.h"
#include "gpu.h"
#include "product.h"

namespace hetero {
namespace {

using Pack16 = Pack<float>;

__global__ void read_all(int64_t n, const Pack16 *from, float *sink) {
  float sum = 0;
  for (int64_t i = first_index(); i < n; i += index_stride()) {
    const Pack16 p = from[i];
    sum += p.v[0] + p.v[1] + p.v[2] + p.v[3];
  }
  if (sum == -1) *sink = sum; // never true; the test keeps the compiler from removing the loads
}

__global__ void copy_all(int64_t n, const Pack16 *from, Pack16 *to) {
  for (int64_t i = first_index(); i < n; i += index_stride()) to[i] = from[i];
}

__global__ void write_all(int64_t n, Pack16 *to) {
  Pack16 p;
  for (int e = 0; e < Pack16::size; e++) p.v[e] = 1;
  for (int64_t i = first_index(); i < n; i += index_stride()) to[i] = p;
}

constexpr int kChains = 8; // independent chains per thread: enough to hide the latency of an addition
#ifdef __CUDACC__
constexpr int kTurns = 4096;
#else
constexpr int kTurns = 64;
#endif

__global__ void multiply_add(float *sink) {
  float sum[kChains];
  for (int c = 0; c < kChains; c++) sum[c] = static_cast<float>(threadIdx.x + c);
  for (int t = 0; t < kTurns; t++)
    for (int c = 0; c < kChains; c++) sum[c] = fmaf(sum[c], 0.999f, 0.001f);
  float all = 0;
  for (int c = 0; c < kChains; c++) all += sum[c];
  if (all == -1) *sink = all; // never true; see above
}

// Memory and a stream for measurements, freed at the end.
class Rig {
public:
  explicit Rig(int64_t bytes) {
    try {
      check(cudaMalloc(&memory_, static_cast<size_t>(bytes)), "allocate memory for the measurement");
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream for the measurement");
      check(cudaEventCreate(&begin_), "create an event for the measurement");
      check(cudaEventCreate(&end_), "create an event for the measurement");
      check(cudaMemsetAsync(memory_, 0x3c, static_cast<size_t>(bytes), stream),
            "fill the memory of the measurement"); // small numbers, because zeros draw less power
    } catch (...) {
      release();
      throw;
    }
  }
  ~Rig() { release(); }
  Rig(const Rig &) = delete;

  char *at(int64_t offset) const { return static_cast<char *>(memory_) + offset; }

  // Returns amount / seconds of the fastest pass.
  template <class Pass> double best(double amount, double seconds, Pass pass) {
    const int64_t end = now_ns() + static_cast<int64_t>(1e9 * seconds);
    double best = 0;
    pass(); // loads code, and does not count
    for (int i = 0; i < 3 || now_ns() < end; i++) {
      check(cudaEventRecord(begin_, stream), "measure the elapsed time");
      pass();
      check(cudaEventRecord(end_, stream), "measure the elapsed time");
      check(cudaEventSynchronize(end_), "measure the elapsed time");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin_, end_), "measure the elapsed time");
      if (ms > 0) best = std::max(best, amount / (1e-3 * static_cast<double>(ms)));
    }
    return best;
  }

  cudaStream_t stream = nullptr;

private:
  void release() {
    if (end_) cudaEventDestroy(end_);
    if (begin_) cudaEventDestroy(begin_);
    if (stream) cudaStreamDestroy(stream);
    cudaFree(memory_);
  }

  void *memory_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double measure_bytes(int32_t what, double seconds) {
  const cudaDeviceProp facts = device_facts();
  // Much larger than the level-2 cache, so that a pass takes much longer than a launch. Smaller if memory is short.
  const int64_t bytes = std::min<int64_t>(20 * int64_t{std::max(facts.l2CacheSize, 1 << 20)},
                                          static_cast<int64_t>(facts.totalGlobalMem / 16)) /
                        256 * 256;
  const bool two = what == HT_PEAK_COPY_BYTES;
  Rig b(two ? 2 * bytes : bytes);
  const int64_t n = bytes / int64_t{sizeof(Pack16)};
  auto *a = reinterpret_cast<Pack16 *>(b.at(0));
  return b.best(static_cast<double>(bytes) * (two ? 2 : 1), seconds, [&] {
    if (what == HT_PEAK_READ_BYTES)
      launch(read_all, over(n), b.stream, n, a, reinterpret_cast<float *>(a));
    else if (two)
      launch(copy_all, over(n), b.stream, n, a, a + n);
    else
      launch(write_all, over(n), b.stream, n, a);
  });
}

double measure_f32(double seconds) {
  const int64_t blocks = 16 * int64_t{device_facts().multiProcessorCount};
  Rig b(256);
  const double flops = 2.0 * kChains * kTurns * kThreads * static_cast<double>(blocks);
  return b.best(flops, seconds,
                [&] { launch(multiply_add, Grid{blocks}, b.stream, reinterpret_cast<float *>(b.at(0))); });
}

// Measures a square product that is so large that every multiprocessor computes several tiles.
double measure_product(int32_t dtype, double seconds) {
  const int64_t n = 64 * int64_t{device_facts().multiProcessorCount}, bytes = 2 * n * n;
  const ProductShape shape{n, n, n, dtype, dtype, true, false};
  const std::vector<Algorithm> algorithms = algorithms_for(shape, 16);
  if (algorithms.empty()) throw Unsupported("measure_peak: cuBLASLt has no algorithm for " + shape.text());
  int64_t workspace = 0;
  for (const Algorithm &a : algorithms) workspace = std::max(workspace, a.workspace);
  Comparison comparison{products_by(), shape.text(), 3 * bytes + kProductAlign + workspace, {}};
  const int64_t behind = (3 * bytes + kProductAlign - 1) / kProductAlign * kProductAlign;
  auto run = [=](const Algorithm &a, char *p, cudaStream_t stream) {
    run_product(shape, a, {p, p + bytes, p + 2 * bytes, nullptr, p + behind}, stream);
  };
  for (const Algorithm &a : algorithms)
    comparison.candidates.push_back(
        {a.name, [=] { return [=](void *p, cudaStream_t s) { run(a, static_cast<char *>(p), s); }; }});
  const Algorithm chosen = algorithms[fastest(comparison)];
  Rig b(comparison.bytes);
  return b.best(2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n), seconds,
                [&] { run(chosen, b.at(0), b.stream); });
}

} // namespace

double measure_peak(int32_t what, double seconds) {
  if (!(seconds >= 0 && seconds < 3600))
    throw Invalid("measure_peak: got " + std::to_string(seconds) + " seconds, want 0 to 3600");
  switch (what) {
  case HT_PEAK_F32_FLOPS: return measure_f32(seconds);
  case HT_PEAK_BF16_FLOPS:
    if (device_facts().major < 8) throw Unsupported("measure_peak: this GPU has no bf16 tensor cores");
    return measure_product(HT_BF16, seconds);
  case HT_PEAK_F16_FLOPS: return measure_product(HT_F16, seconds);
  case HT_PEAK_F32_PRODUCT_FLOPS:
  case HT_PEAK_BF16_PRODUCT_FLOPS: throw Unsupported("measure_peak: the figure of this type is a product already");
  case HT_PEAK_READ_BYTES:
  case HT_PEAK_COPY_BYTES:
  case HT_PEAK_WRITE_BYTES: return measure_bytes(what, seconds);
  default: throw Invalid("measure_peak: got " + std::to_string(what) + ", want a value of enum ht_peak");
  }
}

} // namespace hetero
