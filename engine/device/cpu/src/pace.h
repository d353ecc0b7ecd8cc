// pace.h: slows down a device, to simulate unequal machines on equal ones.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// The slowdown factor of a device, and its total effect. Safe for concurrent use.
class Slowdown {
public:
  double factor() const { return factor_.load(std::memory_order_relaxed); }
  void set(double factor) { factor_.store(factor, std::memory_order_relaxed); }
  int64_t worked_ns() const { return worked_ns_.load(std::memory_order_relaxed); }
  int64_t idle_ns() const { return idle_ns_.load(std::memory_order_relaxed); }

private:
  friend class Pace;
  std::atomic<double> factor_{1};
  std::atomic<int64_t> worked_ns_{0}, idle_ns_{0}; // ns of launches while the factor was above 1; ns of idling
};

// The idle time that one stream owes: (factor - 1) times the time of its launches. A stream sleeps only once it owes a
// millisecond, because each sleep ends about 0.05 ms late. The excess time of a sleep is deducted from later sleeps.
class Pace {
public:
  explicit Pace(Slowdown &slowdown) : slowdown_(slowdown) {}
  // The current factor. If it is 1, the caller need not measure the launch, and no idle time is owed.
  double factor() const { return slowdown_.factor(); }
  // Call this after a launch of ns nanoseconds.
  void worked(int64_t ns, double factor);

private:
  Slowdown &slowdown_;
  double owed_ns_ = 0;
};

} // namespace hetero
