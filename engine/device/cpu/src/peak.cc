// peak.cc: measures the inner loops while they run on all threads at the same time.
#include "peak.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "hetero_device.h"
#include "kernel.h"
#include "machine.h"
#include "memory.h"
#include "peak_product.h"

namespace hetero {

namespace {

using Clock = std::chrono::steady_clock;

// A plain loop, which the compiler vectorises. If the target has a fused multiply-add, the compiler uses it.
int64_t generic_f32(int64_t turns, void *sink) {
  constexpr int lanes = 64;
  float sum[lanes];
  for (int i = 0; i < lanes; i++) sum[i] = static_cast<float>(i);
  const float a = 0.999f, b = 0.001f;
  for (int64_t t = 0; t < turns; t++)
    for (float &s : sum) {
#ifdef __FP_FAST_FMAF
      s = __builtin_fmaf(s, a, b);
#else
      s = s * a + b;
#endif
    }
  std::memcpy(sink, sum, 64);
  return turns * lanes * 2;
}

void generic_read(const char *p, size_t n, void *sink) {
  uint64_t sum[8] = {}, v[8];
  for (size_t i = 0; i < n; i += sizeof v) {
    std::memcpy(v, p + i, sizeof v);
    for (int l = 0; l < 8; l++) sum[l] ^= v[l];
  }
  std::memcpy(sink, sum, 64);
}

// The times at which the threads began and ended a pass.
struct Times {
  std::vector<Clock::time_point> starts, ends;
  double seconds(size_t thread) const { return std::chrono::duration<double>(ends[thread] - starts[thread]).count(); }
  // Returns the time from the first start to the last end, in seconds.
  double seconds() const {
    return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) -
                                         *std::min_element(starts.begin(), starts.end()))
        .count();
  }
};

// Runs pass(thread) on all threads at the same time.
template <class Pass> Times timed(int threads, Pass pass) {
  Times times{std::vector<Clock::time_point>(static_cast<size_t>(threads)),
              std::vector<Clock::time_point>(static_cast<size_t>(threads))};
#pragma omp parallel num_threads(threads)
  {
    auto t = static_cast<size_t>(omp_get_thread_num());
#pragma omp barrier
    times.starts[t] = Clock::now();
    pass(static_cast<int>(t));
    times.ends[t] = Clock::now();
  }
  return times;
}

struct alignas(64) Sink {
  char bytes[64];
};

// The length of a pass in seconds. It is long compared with the start of a team, which takes microseconds. It is
// shorter than the scheduler's time slice of about 3 ms: on a busy machine, other processes would interrupt a longer
// pass.
constexpr double pass_seconds = 0.002;

// Returns the sum over threads of each thread's best pass. On a busy machine, hardly any pass is undisturbed on all
// threads at the same time.
double measure_flops(int64_t (*loop)(int64_t, void *), double seconds, int threads) {
  std::vector<Sink> sinks(static_cast<size_t>(threads));
  std::vector<int64_t> done(static_cast<size_t>(threads));
  std::vector<double> best(static_cast<size_t>(threads)); // best rate of each thread, FLOP/s
  int64_t turns = 1000;
  for (auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end || best[0] == 0;) {
    const Times times =
        timed(threads, [&](int t) { done[static_cast<size_t>(t)] = loop(turns, &sinks[static_cast<size_t>(t)]); });
    if (times.seconds() < pass_seconds / 2) {
      turns *= 2;
      continue;
    }
    for (size_t t = 0; t < best.size(); t++)
      best[t] = std::max(best[t], static_cast<double>(done[t]) / times.seconds(t));
  }
  return std::accumulate(best.begin(), best.end(), 0.0);
}

double measure_bytes(const PeakLoops &l, int32_t what, double seconds, int threads) {
  // The buffer must exceed the caches. A virtual machine may report caches that are too large, but a larger buffer only
  // costs page faults.
  int64_t cache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  int64_t part = std::min<int64_t>(std::clamp<int64_t>(4 * cache, 256 << 20, 512 << 20), usable_memory() / 8) /
                 threads / 4096 * 4096;
  part = std::max<int64_t>(part, 4096);
  int64_t total = part * threads;
  bool two = what == HT_PEAK_COPY_BYTES;
  auto give_back = [total](char *p) { release(p, total); };
  using Block = std::unique_ptr<char, decltype(give_back)>;
  Block a(static_cast<char *>(allocate(total)), give_back),
      b(two ? static_cast<char *>(allocate(total)) : nullptr, give_back);
  if (!a || (two && !b)) throw std::bad_alloc();
  timed(threads, [&](int t) {
    std::memset(a.get() + t * part, t + 1, static_cast<size_t>(part));
    if (b) std::memset(b.get() + t * part, t, static_cast<size_t>(part));
  });
  std::vector<Sink> sinks(static_cast<size_t>(threads));
  auto pass = [&](int t) {
    char *p = a.get() + t * part;
    auto n = static_cast<size_t>(part);
    switch (what) {
    case HT_PEAK_READ_BYTES: l.read(p, n, &sinks[static_cast<size_t>(t)]); break;
    case HT_PEAK_COPY_BYTES: l.copy(b.get() + t * part, p, n); break;
    default: l.write(p, n);
    }
  };
  double best = 0, bytes = static_cast<double>(total) * (two ? 2 : 1);
  for (auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end || best == 0;)
    best = std::max(best, bytes / timed(threads, pass).seconds());
  return best;
}

} // namespace

PeakLoops generic_peak_loops() {
  return {generic_f32, nullptr, generic_read, [](char *to, const char *from, size_t n) { std::memcpy(to, from, n); },
          [](char *p, size_t n) { std::memset(p, 1, n); }};
}

double measure_sizes(double seconds, const std::function<std::function<void()>(int64_t n)> &prepare) {
  double best = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (int64_t n = 256;; n *= 2) {
    const auto product = prepare(n);
    double took = 0;
    do {
      const auto begun = Clock::now();
      product();
      took = std::chrono::duration<double>(Clock::now() - begun).count();
      best = std::max(best, 2 * std::pow(static_cast<double>(n), 3) / took);
    } while (Clock::now() < end && (took > pass_seconds / 2 || n == 2048));
    if (Clock::now() >= end || n == 2048) return best;
  }
}

double measure_peak(int32_t what, double seconds) {
  if (!(seconds >= 0 && seconds < 3600))
    throw Invalid("measure_peak: got " + std::to_string(seconds) + " seconds, want 0 to 3600");
  PeakLoops l = peak_loops();
  int threads = omp_get_max_threads();
  switch (what) {
  case HT_PEAK_F32_FLOPS: return measure_flops(l.f32, seconds, threads);
  case HT_PEAK_BF16_FLOPS:
    if (!l.bf16) throw Unsupported("measure_peak: this CPU has no bf16 dot product");
    return measure_flops(l.bf16, seconds, threads);
  case HT_PEAK_F32_PRODUCT_FLOPS: return measure_product(HT_F32, seconds, threads);
  case HT_PEAK_BF16_PRODUCT_FLOPS:
    if (!l.bf16) throw Unsupported("measure_peak: this CPU has no bf16 dot product");
    return measure_product(HT_BF16, seconds, threads);
  case HT_PEAK_F16_FLOPS: throw Unsupported("measure_peak: no f16 dot products on a CPU");
  case HT_PEAK_READ_BYTES:
  case HT_PEAK_COPY_BYTES:
  case HT_PEAK_WRITE_BYTES: return measure_bytes(l, what, seconds, threads);
  default: throw Invalid("measure_peak: got " + std::to_string(what) + ", want a value of enum ht_peak");
  }
}

} // namespace hetero
