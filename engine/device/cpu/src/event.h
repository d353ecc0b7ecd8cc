// event.h: a point in a stream that other OS threads can wait for.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// An event is pending until it is first recorded, and from the announcement of a recording until the stream reaches it.
// If a failure prevents the recording, the event is failed. Waiting sleeps on a futex. Any thread may call any function
// at any time.
class Event {
public:
  enum State : uint32_t { complete, pending, failed };

  State state() const { return state_of(word_.load(std::memory_order_acquire)); }
  // Makes a complete event pending. It does not affect threads that waited for the completion.
  void announce();
  void settle(State s); // complete or failed
  // Waits until the event is not pending, and returns the state; pending after timeout_ns. Negative: no limit.
  State wait(int64_t timeout_ns);

private:
  // The low two bits are the state; the others count completions that were taken back.
  static constexpr uint32_t state_bits = 2;
  static State state_of(uint32_t word) { return static_cast<State>(word & ((1u << state_bits) - 1)); }

  std::atomic<uint32_t> word_{pending};
  std::atomic<int32_t> waiters_{0};
};

} // namespace hetero
