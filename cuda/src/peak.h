// peak.h: measures the hardware limits of a GPU.
#pragma once

#include <cstdint>

namespace hetero {

// Returns the best of several passes that take about the given seconds in total, on the device in use. what: an
// ht_peak. Throws Unsupported if the GPU lacks the instructions.
double measure_peak(int32_t what, double seconds);

} // namespace hetero
