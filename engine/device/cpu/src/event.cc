// event.cc: implements Event with a futex.
#include "event.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "clock.h"

namespace hetero {

void Event::announce() {
  uint32_t word = word_.load();
  while (state_of(word) != pending) {
    uint32_t next = (((word >> state_bits) + 1) << state_bits) | pending;
    if (word_.compare_exchange_weak(word, next)) return;
  }
}

void Event::settle(State s) {
  uint32_t word = word_.load();
  while (!word_.compare_exchange_weak(word, ((word >> state_bits) << state_bits) | s)) {
  }
  // The load is sequentially consistent, like the waiter's increment of the count. Either the waiter sees the new
  // state, or this thread sees the waiter.
  if (waiters_.load() > 0)
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

Event::State Event::wait(int64_t timeout_ns) {
  uint32_t seen = word_.load();
  if (state_of(seen) != pending) return state_of(seen);
  int64_t now = now_ns();
  int64_t end = timeout_ns < 0 || timeout_ns > INT64_MAX - now ? -1 : now + timeout_ns;
  waiters_++;
  uint32_t word;
  while ((word = word_.load()) == seen) {
    timespec rest{}, *limit = nullptr;
    if (end >= 0) {
      int64_t left = end - now_ns();
      if (left <= 0) break;
      rest.tv_sec = left / 1000000000;
      rest.tv_nsec = left % 1000000000;
      limit = &rest;
    }
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word_), FUTEX_WAIT_PRIVATE, seen, limit, nullptr, 0);
  }
  waiters_--;
  // If the count of resets has changed, the event was settled and then made pending again before this thread read it.
  return (word ^ seen) >> state_bits ? complete : state_of(word);
}

} // namespace hetero
