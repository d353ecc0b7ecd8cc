// event.cc: the host polls: first in place, since what a step waits for comes within microseconds, then between short sleeps.
#include "event.h"

#include <time.h>

#include "clock.h"
#include "gpu.h"
#include "memops.h"

namespace hetero {

Event::Event() {
  void *p = nullptr;
  check(cudaHostAlloc(&p, sizeof *word_, cudaHostAllocMapped | cudaHostAllocPortable), "an event's word");
  word_ = static_cast<uint32_t *>(p);
  *word_ = kPending;
}

Event::~Event() { cudaFreeHost(word_); }

Event::State Event::state() const {
  if (__atomic_load_n(word_, __ATOMIC_ACQUIRE) == kPending) return pending;
  return failed_ ? failed : complete;
}

void Event::announce() {
  if (__atomic_load_n(word_, __ATOMIC_ACQUIRE) == kPending) return;
  failed_ = false;
  taken_back_++; // before the word: who sees it pending again sees this too
  __atomic_store_n(word_, kPending, __ATOMIC_RELEASE);
}

void Event::settle(State s) {
  failed_ = s == failed;
  __atomic_store_n(word_, kComplete, __ATOMIC_RELEASE);
}

Event::State Event::wait(int64_t timeout_ns) const {
  constexpr int64_t kSpin = 20'000, kSleep = 20'000; // ns
  const uint32_t seen = taken_back_;
  const int64_t begin = now_ns();
  for (;;) {
    if (const State s = state(); s != pending) return s;
    if (taken_back_ != seen) return complete; // it was settled, and taken back before this thread saw it
    const int64_t passed = now_ns() - begin;
    if (timeout_ns >= 0 && passed >= timeout_ns) return pending;
    if (passed < kSpin) continue;
    const timespec nap{0, kSleep};
    nanosleep(&nap, nullptr);
  }
}

void Event::enqueue_record(cudaStream_t stream) { stream_write(stream, word_, kComplete); }

void Event::enqueue_wait(cudaStream_t stream) { stream_wait(stream, word_, kComplete); }

} // namespace hetero
