// peak_product.h: the parts of the peak measurements that depend on the architecture. peak_product.cc is for x86-64,
// peak_product_arm64.cc for arm64.
#pragma once

#include <cstdint>
#include <functional>

#include "peak.h"

namespace hetero {

// Returns the fastest loops for this CPU.
PeakLoops peak_loops();

// Returns the rate in FLOP/s of square products of a type: those of oneDNN on x86-64, and those of linear layers on
// arm64. Throws Unsupported.
double measure_product(int32_t dtype, double seconds, int threads);

// Returns the highest rate of square products, in FLOP/s. prepare(n) returns a function that computes a product of two
// n x n matrices. n is doubled until one product takes at least half as long as a pass, but at most to 2048.
double measure_sizes(double seconds, const std::function<std::function<void()>(int64_t n)> &prepare);

} // namespace hetero
