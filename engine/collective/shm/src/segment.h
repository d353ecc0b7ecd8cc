// segment.h: the layout of the shared memory, and one rank's view of it.
//
// Layout: a head, one RankHead per rank, then for each rank two stages and two results of stage_bytes each.
//
// All ranks go through the same turns. Turns are numbered from 1, from the creation of the group. In a turn, a rank
// fills its stage (turn % 2) and raises `staged` to the turn's number. It reads another rank's stage after that rank
// has raised `staged`. To distribute sums, a rank then fills its result (turn % 2) and raises `reduced` in the same
// way. Two stages and two results are enough, because run.cc follows a rule: a rank that raises `staged` to t + 1 has
// read all data of turn t - 1.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hetero_shm.h"

namespace hetero {

// A number that only grows, modulo 2^32. One process raises it; other processes wait until it reaches a turn.
struct alignas(64) Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> waiters;

  bool reached(uint32_t turn) const { return static_cast<int32_t>(value.load(std::memory_order_acquire) - turn) >= 0; }
  void raise(uint32_t turn);
  void wake(); // wakes the waiting ranks without a new value, so that they check the states
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "futexes need plain words");
static_assert(std::atomic<uint64_t>::is_always_lock_free, "another process cannot take a lock of this one");

struct RankHead {
  Counter staged, reduced;
  alignas(64) std::atomic<uint64_t> entered;
  std::atomic<uint64_t> finished;
  std::atomic<uint32_t> state; // hetero_shm_state
  // Signatures of the entered operations, by operation number % 2: a rank can be at most one operation ahead of
  // another.
  hetero_signature signature[2];
  char name[2][HETERO_SHM_NAME];
  char text[HETERO_SHM_TEXT]; // written before state
};

struct alignas(64) Head {
  uint64_t magic;
  int32_t size;
  int64_t stage_bytes;          // a multiple of 64
  std::atomic<uint32_t> failed; // 1 + the rank that ended the group; 0: none
};

// One rank's mapping. Throws std::system_error if a system call fails.
class Segment {
public:
  static int create(int size, int64_t stage_bytes); // returns the descriptor of the memory file
  Segment(int fd, int rank, int size);
  ~Segment();
  Segment(const Segment &) = delete;
  Segment &operator=(const Segment &) = delete;

  Head &head() const { return *static_cast<Head *>(base_); }
  RankHead &rank_head(int rank) const;
  std::byte *stage(int rank, uint32_t turn) const { return area(rank, turn % 2); }
  std::byte *result(int rank, uint32_t turn) const { return area(rank, 2 + turn % 2); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  size_t stage_bytes() const { return static_cast<size_t>(head().stage_bytes); }

  void set_state(int rank, uint32_t state, const char *text);
  int failed() const { return static_cast<int>(head().failed.load()) - 1; }
  void wake_all();

private:
  std::byte *area(int rank, uint32_t which) const;

  int rank_, size_;
  size_t bytes_ = 0;
  void *base_ = nullptr;
};

} // namespace hetero
