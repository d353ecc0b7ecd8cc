// event.cc: the host polls. It first spins, because a step's events usually come within microseconds, then sleeps
// briefly between polls.
#include "event.h"

#include <time.h>

#include "clock.h"
#include "gpu.h"
#include "memops.h"
#include "quiet.h"

namespace hetero {

namespace {

// ns of polling without sleep, and of each sleep between later polls.
constexpr int64_t kSpin = 20'000, kSleep = 20'000;
constexpr int64_t kLong = 20'000'000;      // ns of waiting after which the GPU may be checked
constexpr int64_t kAskEvery = 500'000'000; // ns; a check takes up to 100 us

} // namespace

void Pulse::feel() {
  int64_t asked = asked_ns_;
  const int64_t now = now_ns();
  if (now - asked < kAskEvery || !asked_ns_.compare_exchange_strong(asked, now)) return;
  check(cudaSetDevice(device_), "the GPU does not answer");
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "the GPU does not answer"); // the driver must access the GPU for this
}

Event::Event(Pulse &pulse) : pulse_(pulse) {
  void *p = nullptr;
  check(cudaHostAlloc(&p, sizeof *word_, cudaHostAllocMapped | cudaHostAllocPortable), "allocate an event's flag");
  word_ = static_cast<uint32_t *>(p);
  *word_ = kPending;
}

Event::~Event() { Quiet::freed(cudaFreeHost(word_), "an event's flag"); }

Event::State Event::state() const {
  if (__atomic_load_n(word_, __ATOMIC_ACQUIRE) == kPending) return pending;
  return failed_ ? failed : complete;
}

void Event::announce() {
  if (__atomic_load_n(word_, __ATOMIC_ACQUIRE) == kPending) return;
  failed_ = false;
  taken_back_++; // increment first, so that a thread that sees the event pending again also sees the new number
  __atomic_store_n(word_, kPending, __ATOMIC_RELEASE);
}

void Event::settle(State s) {
  failed_ = s == failed;
  __atomic_store_n(word_, kComplete, __ATOMIC_RELEASE);
}

Event::State Event::wait(int64_t timeout_ns) const {
  const uint32_t seen = taken_back_;
  const int64_t begin = now_ns();
  for (;;) {
    if (const State s = state(); s != pending) return s;
    // The event was complete, and became pending again before this thread saw it.
    if (taken_back_ != seen) return complete;
    const int64_t passed = now_ns() - begin;
    if (timeout_ns >= 0 && passed >= timeout_ns) return pending;
    if (passed < kSpin) continue;
    if (passed > kLong) pulse_.feel();
    const timespec nap{0, kSleep};
    nanosleep(&nap, nullptr);
  }
}

void Event::enqueue_record(cudaStream_t stream) { stream_write(stream, word_, kComplete); }

void Event::enqueue_wait(cudaStream_t stream) { stream_wait(stream, word_, kComplete); }

} // namespace hetero
