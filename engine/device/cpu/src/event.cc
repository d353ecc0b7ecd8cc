// event.cc: futex waits.
#include "event.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace hetero {

namespace {

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{1000000000} * t.tv_sec + t.tv_nsec;
}

} // namespace

void Event::settle(State s) {
  state_.store(s); // sequentially consistent, as is the waiter's count: one of the two sees the other
  if (waiters_.load() > 0)
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&state_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

bool Event::wait(int64_t timeout_ns) {
  if (state() != pending) return true;
  int64_t now = now_ns();
  int64_t end = timeout_ns < 0 || timeout_ns > INT64_MAX - now ? -1 : now + timeout_ns;
  waiters_++;
  bool over = false;
  while (state_.load() == pending) {
    timespec rest{}, *limit = nullptr;
    if (end >= 0) {
      int64_t left = end - now_ns();
      if (left <= 0) {
        over = true;
        break;
      }
      rest.tv_sec = left / 1000000000;
      rest.tv_nsec = left % 1000000000;
      limit = &rest;
    }
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&state_), FUTEX_WAIT_PRIVATE, pending, limit, nullptr, 0);
  }
  waiters_--;
  return !over;
}

} // namespace hetero
