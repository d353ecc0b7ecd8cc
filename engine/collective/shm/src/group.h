// group.h: one rank's operations.
#pragma once

#include <atomic>
#include <vector>

#include "parts.h"
#include "reduce.h"
#include "segment.h"

namespace hetero {

class Group {
public:
  Group(int fd, int rank, int size)
      : segment(fd, rank, size), me_(rank), size_(size), sources_(static_cast<size_t>(size)) {}

  // Performs one operation and returns a hetero_shm_status.
  int run(hetero_shm_call &call, std::byte *buffer, const int64_t *counts);
  void stop() {
    stopped_ = true;
    segment.wake_all();
  }

  Segment segment;

private:
  struct Failure {
    int status;
    int rank;
  };

  void perform(std::byte *buffer, const int64_t *counts);
  void gather(std::byte *buffer, const int64_t *counts);
  void reduce_small(std::byte *buffer);
  void reduce_parts(std::byte *buffer, const int64_t *counts);
  void stage_parts(const std::byte *buffer, const int64_t *counts, size_t first, size_t block);
  void fetch_results(std::byte *buffer, const int64_t *counts, size_t first, size_t block);
  Part part(int rank, const int64_t *counts) const { return part_of(call_->op, rank, size_, counts); }
  Part piece(int rank, const int64_t *counts, size_t first, size_t block) const;

  void enter();
  void next_turn() { turn_++; }
  void tell_staged() { mine().staged.raise(turn_); }
  void await_all(Counter RankHead::*counter);
  void await(int rank, Counter &counter);
  void check_agreement();
  RankHead &mine() const { return segment.rank_head(me_); }

  int me_, size_;
  uint32_t turn_ = 0;
  std::atomic<bool> stopped_{false};

  // State of the current operation.
  hetero_shm_call *call_ = nullptr;
  int64_t deadline_ns_ = -1; // monotonic clock; negative: no limit
  int64_t looked_ns_ = 0;    // when this rank last read the clock in the operation
  bool agreed_ = false;
  size_t element_ = 1; // bytes
  ReduceKernel kernel_ = nullptr;
  std::vector<const void *> sources_;
};

} // namespace hetero
