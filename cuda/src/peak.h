// peak.h: what the GPU can do at best, measured.
#pragma once

#include <cstdint>

namespace hetero {

// The best of several passes that take about so many seconds together, on the device in use. what: an ht_peak. Throws Unsupported where
// the GPU lacks the instructions.
double measure_peak(int32_t what, double seconds);

} // namespace hetero
