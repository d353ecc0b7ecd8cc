// peak.h: measures the hardware limits of this machine, with all threads of the calling thread's team.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hetero {

// Returns the highest rate of several passes, which together take about the given number of seconds. `what` is a value
// of enum ht_peak, and selects the rate. Throws Invalid or Unsupported.
double measure_peak(int32_t what, double seconds);

// The inner loops for one instruction set. Each loop writes a value that depends on all its results to sink (64 bytes).
// Otherwise the compiler could remove the computation.
struct PeakLoops {
  int64_t (*f32)(int64_t turns, void *sink);  // returns the number of executed FLOPs
  int64_t (*bf16)(int64_t turns, void *sink); // nullptr if the CPU lacks the instruction
  // Memory loops: addresses are multiples of 64, and n is a multiple of 1024 bytes.
  void (*read)(const char *p, size_t n, void *sink);
  void (*copy)(char *to, const char *from, size_t n);
  void (*write)(char *p, size_t n);
};

PeakLoops generic_peak_loops();
PeakLoops avx2_peak_loops();
PeakLoops avx512_peak_loops();
int64_t avx512_bf16_peak(int64_t turns, void *sink);
int64_t amx_bf16_peak(int64_t turns, void *sink); // only if has_amx_bf16()
int64_t bfmmla_peak(int64_t turns, void *sink);   // only if has_bfmmla()

} // namespace hetero
