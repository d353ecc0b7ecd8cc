// event.h: a point in a stream that other OS threads can wait for.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// An event is pending until a stream first reaches its recording. When a new recording is announced, the event is
// pending again until the stream reaches this recording. If a failure prevents the recording, the event has failed.
// Waiting threads sleep on a futex. All functions are safe for concurrent use.
class Event {
public:
  enum State : uint32_t { complete, pending, failed };

  State state() const { return state_of(word_.load(std::memory_order_acquire)); }
  // Makes a complete event pending. Threads that already waited for the completion still return.
  void announce();
  void settle(State s); // sets the state to complete or failed
  // Waits until the event is not pending, and returns its state. Returns pending after timeout_ns; a negative
  // timeout_ns means no limit.
  State wait(int64_t timeout_ns);

private:
  // The low two bits are the state. The other bits count how often a completion was reset.
  static constexpr uint32_t state_bits = 2;
  static State state_of(uint32_t word) { return static_cast<State>(word & ((1u << state_bits) - 1)); }

  std::atomic<uint32_t> word_{pending};
  std::atomic<int32_t> waiters_{0};
};

} // namespace hetero
