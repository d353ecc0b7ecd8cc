// warp.h: sums over the lanes of a warp.
#pragma once

#include "gpu.h"

namespace hetero {

constexpr unsigned kAll = 0xffffffffu; // mask of all lanes of a warp

// Returns the sum over all lanes, in every lane.
__device__ inline float warp_sum(float v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kAll, v, step);
  return v;
}

} // namespace hetero
