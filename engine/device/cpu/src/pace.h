// pace.h: makes a device slower than it is, so that equal machines can stand in for unequal ones.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// How much slower a device is, and what that came to. Any thread may call anything at any time.
class Slowdown {
public:
  double factor() const { return factor_.load(std::memory_order_relaxed); }
  void set(double factor) { factor_.store(factor, std::memory_order_relaxed); }
  int64_t worked_ns() const { return worked_ns_.load(std::memory_order_relaxed); }
  int64_t idle_ns() const { return idle_ns_.load(std::memory_order_relaxed); }

private:
  friend class Pace;
  std::atomic<double> factor_{1};
  std::atomic<int64_t> worked_ns_{0}, idle_ns_{0}; // while the factor was above 1
};

// What one stream owes: (factor - 1) times what it has worked. It is paid in sleeps of a millisecond and more, since each is
// some 0.05 ms late; what a sleep was too long counts for later work.
class Pace {
public:
  explicit Pace(Slowdown &slowdown) : slowdown_(slowdown) {}
  // At 1 nothing is to be measured, and nothing owed.
  double factor() const { return slowdown_.factor(); }
  // After work of so long.
  void worked(int64_t ns, double factor);

private:
  Slowdown &slowdown_;
  double owed_ns_ = 0;
};

} // namespace hetero
