// event.h: a point in a stream that other OS threads can wait for.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// Pending until it is first recorded, and again from when a recording is announced until it is reached; one that a
// failure kept from being reached leaves it failed. Waiting sleeps on a futex. Any thread may call anything at any time.
class Event {
public:
  enum State : uint32_t { complete, pending, failed };

  State state() const { return state_of(word_.load(std::memory_order_acquire)); }
  // Takes completion back, if there is one. Who waited for what was complete is not held up by it.
  void announce();
  void settle(State s); // complete or failed
  // Waits until it is not pending, and says what it is then; pending if timeout_ns is over first. Negative: without end.
  State wait(int64_t timeout_ns);

private:
  // The state in two bits, above them the number of completions that were taken back.
  static constexpr uint32_t state_bits = 2;
  static State state_of(uint32_t word) { return static_cast<State>(word & ((1u << state_bits) - 1)); }

  std::atomic<uint32_t> word_{pending};
  std::atomic<int32_t> waiters_{0};
};

} // namespace hetero
