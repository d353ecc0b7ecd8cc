// account.h: how much of a device's memory is given out.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// Bytes as they were asked for, not as the system rounds them. Any thread may call anything at any time.
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
