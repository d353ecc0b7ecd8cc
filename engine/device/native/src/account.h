// account.h: counts the allocated memory of a device.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// Counts the requested bytes, without the rounding of the system. Safe for concurrent use.
class Account {
public:
  void add(int64_t bytes) {
    const int64_t now = allocated_ += bytes;
    for (int64_t most = peak_; most < now && !peak_.compare_exchange_weak(most, now);) {
    }
  }
  void remove(int64_t bytes) { allocated_ -= bytes; }
  int64_t allocated() const { return allocated_; }
  int64_t peak() const { return peak_; }

private:
  std::atomic<int64_t> allocated_{0}, peak_{0};
};

} // namespace hetero
