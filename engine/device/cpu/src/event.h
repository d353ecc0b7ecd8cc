// event.h: a point in a stream that other OS threads can wait for.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// Pending until it is first recorded, and again from when a recording is announced until it is reached; one that a
// failure kept from being reached leaves it failed. Waiting sleeps on a futex.
class Event {
public:
  enum State : uint32_t { complete, pending, failed };

  State state() const { return static_cast<State>(state_.load(std::memory_order_acquire)); }
  void announce() { state_.store(pending, std::memory_order_release); }
  void settle(State s); // complete or failed
  // Waits until it is not pending; false if timeout_ns is over first. Negative: without end.
  bool wait(int64_t timeout_ns);

private:
  std::atomic<uint32_t> state_{pending};
  std::atomic<int32_t> waiters_{0};
};

} // namespace hetero
