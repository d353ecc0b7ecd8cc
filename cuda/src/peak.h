// peak.h: measures the hardware limits of a GPU.
#pragma once

#include <cstdint>

namespace hetero {

// Returns the rate of the fastest of several passes on the device in use. The passes take about the given seconds in
// total. `what` is an ht_peak. Throws Unsupported if the GPU lacks the instructions.
double measure_peak(int32_t what, double seconds);

} // namespace hetero
