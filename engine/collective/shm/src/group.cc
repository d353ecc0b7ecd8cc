// group.cc: entering operations and waiting for other ranks.
#include "group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace hetero {

namespace {

// Maximum time for which a waiting rank sleeps before it checks the states of the other ranks.
constexpr int64_t slice_ns = 100'000'000;

// If a rank has not read the clock for this long, its process or the machine was stopped. Such a pause does not count
// towards the time limit. With a larger value, longer pauses count and can exceed an operation's time limit. With a
// smaller value, delays on a busy machine extend the limit.
constexpr int64_t slept_ns = 1'000'000'000;

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{1000000000} * t.tv_sec + t.tv_nsec;
}

} // namespace

int Group::run(hetero_shm_call &call, std::byte *buffer, const int64_t *counts) {
  call_ = &call;
  call.op.parts = hash_of(counts, size_);
  looked_ns_ = now_ns();
  deadline_ns_ = call.timeout_ns < 0 ? -1 : looked_ns_ + call.timeout_ns;
  agreed_ = false;
  try {
    enter();
    perform(buffer, counts);
  } catch (const Failure &f) {
    call.rank = f.rank;
    return f.status;
  }
  mine().finished.store(call.op.number);
  return HETERO_SHM_OK;
}

void Group::enter() {
  RankHead &r = mine();
  r.signature[call_->op.number % 2] = call_->op;
  std::memcpy(r.name[call_->op.number % 2], call_->name, sizeof call_->name);
  r.entered.store(call_->op.number);
}

// await_all waits until every rank has raised a counter to the number of this turn. After the first wait in an
// operation, all ranks have entered the operation, so await_all then compares their signatures.
void Group::await_all(Counter RankHead::*counter) {
  for (int i = 1; i < size_; i++) {
    int rank = (me_ + i) % size_;
    await(rank, segment.rank_head(rank).*counter);
  }
  if (!agreed_) check_agreement();
}

void Group::check_agreement() {
  for (int rank = 0; rank < size_; rank++) {
    const hetero_signature &theirs = segment.rank_head(rank).signature[call_->op.number % 2];
    if (!same(theirs, call_->op)) {
      call_->theirs = theirs;
      throw Failure{HETERO_SHM_MISMATCH, rank};
    }
  }
  agreed_ = true;
}

// await waits until one rank has raised a counter to the number of this turn. If the rank has done this, await succeeds
// even if a rank was lost later. await never spins. In measurements with at least as many ranks as cores, a spin of 5
// us cost more time than it saved.
void Group::await(int rank, Counter &counter) {
  if (counter.reached(turn_)) return;
  counter.waiters++;
  struct Leave {
    Counter &counter;
    ~Leave() { counter.waiters--; }
  } leave{counter};
  for (;;) {
    uint32_t seen = counter.value.load();
    if (static_cast<int32_t>(seen - turn_) >= 0) return;
    if (stopped_) throw Failure{HETERO_SHM_STOPPED, -1};
    int gone = segment.failed();
    if (gone < 0 && segment.rank_head(rank).state.load() == HETERO_SHM_LEFT) gone = rank;
    // Check again: since the check above, the rank may have raised the counter and left.
    if (gone >= 0 && counter.reached(turn_)) return;
    if (gone >= 0) throw Failure{HETERO_SHM_PEER, gone};
    int64_t rest = slice_ns;
    if (deadline_ns_ >= 0) {
      const int64_t now = now_ns();
      if (now - looked_ns_ > slept_ns) deadline_ns_ += now - looked_ns_;
      looked_ns_ = now;
      rest = std::min(rest, deadline_ns_ - now);
      if (rest <= 0) throw Failure{HETERO_SHM_TIMEOUT, rank};
    }
    timespec limit{0, static_cast<long>(rest)};
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&counter.value), FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
}

} // namespace hetero
