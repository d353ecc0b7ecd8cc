// clock.h
#pragma once

#include <time.h>

#include <cstdint>

namespace hetero {

// Returns the time of the monotonic clock in ns.
inline int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{1000000000} * t.tv_sec + t.tv_nsec;
}

} // namespace hetero
