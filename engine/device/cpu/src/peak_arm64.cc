// peak_arm64.cc: the measurements of peak.cc, with bfmmla, and with the products of this library in place of oneDNN's.
//
// peak.cc is part of this file under another name, so that no code for arm64 changes the file that x86-64 compiles.
#define measure_peak measure_common_peak
#include "peak.cc"
#undef measure_peak

#include "isa_arm64.h"
#include "ops.h"
#include "peak_arm64.h"
#include "specs.h"

namespace hetero {

namespace {

// Measures square products by the kernel of linear layers. The size is the first one whose product takes about the time
// of a pass.
double measure_linear(int32_t dtype, double seconds, int threads) {
  const ht_linear_params params{};
  double best = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (int64_t n = 256;; n *= 2) {
    const ht_spec matrix = make_spec(dtype, {n, n}), sums = make_spec(HT_F32, {n, n});
    const auto kernel = make_linear({HT_LINEAR, &params, {matrix, matrix}, {sums}, threads});
    std::vector<char> memory(size_t(2 * matrix.bytes + sums.bytes + kernel->workspace + 64),
                             0x3c); // 0.011 in both types
    char *at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    void *in[] = {at + kernel->workspace, at + kernel->workspace + matrix.bytes},
         *out[] = {at + kernel->workspace + 2 * matrix.bytes};
    double took = 0;
    do {
      const auto begun = Clock::now();
      kernel->run({in, out, at, nullptr});
      took = std::chrono::duration<double>(Clock::now() - begun).count();
      best = std::max(best, 2 * std::pow(static_cast<double>(n), 3) / took);
    } while (Clock::now() < end && (took > pass_seconds / 2 || n == 2048));
    if (Clock::now() >= end || n == 2048) return best;
  }
}

} // namespace

double measure_peak(int32_t what, double seconds) {
  const bool bf16 = what == HT_PEAK_BF16_PRODUCT_FLOPS || what == HT_PEAK_BF16_FLOPS;
  if (!(seconds >= 0 && seconds < 3600) || (bf16 && !has_bfmmla())) return measure_common_peak(what, seconds); // throws
  const int threads = omp_get_max_threads();
  switch (what) {
  case HT_PEAK_BF16_FLOPS: return measure_flops(bfmmla_peak, seconds, threads);
  case HT_PEAK_F32_PRODUCT_FLOPS: return measure_linear(HT_F32, seconds, threads);
  case HT_PEAK_BF16_PRODUCT_FLOPS: return measure_linear(HT_BF16, seconds, threads);
  default: return measure_common_peak(what, seconds);
  }
}

} // namespace hetero
