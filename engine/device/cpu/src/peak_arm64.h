// peak_arm64.h: the loop of the bf16 peak measurement.
#pragma once

#include <cstdint>

namespace hetero {

int64_t bfmmla_peak(int64_t turns, void *sink); // as PeakLoops.bf16; only if has_bfmmla()

} // namespace hetero
