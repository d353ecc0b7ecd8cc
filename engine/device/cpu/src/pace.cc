// pace.cc: sleeps for the idle time that a stream owes.
#include "pace.h"

#include <time.h>

#include <algorithm>

#include "clock.h"

namespace hetero {

namespace {

constexpr double chunk_ns = 1e6;
// The largest excess time of a sleep that is deducted from later sleeps. There is a limit because the process may have
// been stopped during the sleep.
constexpr double most_credit_ns = 20e6;

} // namespace

void Pace::worked(int64_t ns, double factor) {
  slowdown_.worked_ns_.fetch_add(ns, std::memory_order_relaxed);
  owed_ns_ += (factor - 1) * static_cast<double>(ns);
  if (owed_ns_ < chunk_ns) return;
  int64_t begin = now_ns();
  auto owed = static_cast<int64_t>(owed_ns_);
  int64_t end = begin + owed;
  timespec until{};
  until.tv_sec = end / 1000000000;
  until.tv_nsec = end % 1000000000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  } // interrupted by a signal: the deadline does not change
  int64_t slept = now_ns() - begin;
  slowdown_.idle_ns_.fetch_add(slept, std::memory_order_relaxed);
  owed_ns_ = std::max(owed_ns_ - static_cast<double>(slept), -most_credit_ns);
}

} // namespace hetero
