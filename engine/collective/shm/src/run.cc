// run.cc: the operations, in turns. segment.h defines a turn.
#include <algorithm>
#include <cstring>

#include "group.h"

namespace hetero {

namespace {

// In all-reduces of at most this many bytes in total over all ranks, every rank computes the whole result. This needs
// one synchronization instead of two.
constexpr size_t small_bytes = 256 << 10;

} // namespace

void Group::perform(std::byte *buffer, const int64_t *counts) {
  const hetero_signature &op = call_->op;
  element_ = element_bytes(op.dtype);
  size_t bytes = static_cast<size_t>(op.elements) * element_;
  kernel_ = reduce_kernel(op.dtype, op.reduce);
  if (op.kind == HETERO_REDUCE_SCATTER)
    reduce_parts(buffer, counts);
  else if (op.kind != HETERO_ALL_REDUCE)
    gather(buffer, counts);
  else if (bytes <= small_bytes / static_cast<size_t>(size_) && bytes <= segment.stage_bytes())
    reduce_small(buffer);
  else
    reduce_parts(buffer, nullptr);
}

// piece returns the block of a rank's part that begins at byte number first of the part.
Part Group::piece(int rank, const int64_t *counts, size_t first, size_t block) const {
  Part p = part(rank, counts);
  first = std::min(first, p.bytes);
  return {p.offset + first, std::min(block, p.bytes - first)};
}

// gather implements all-gather, broadcast and barrier. In a turn, every rank stages the next block of its part and
// reads the blocks of the other ranks. It stages a further block only after it has read them.
void Group::gather(std::byte *buffer, const int64_t *counts) {
  size_t block = segment.stage_bytes(), longest = 0;
  for (int r = 0; r < size_; r++) longest = std::max(longest, part(r, counts).bytes);
  size_t first = 0;
  do {
    next_turn();
    Part own = piece(me_, counts, first, block);
    if (own.bytes) std::memcpy(segment.stage(me_, turn_), buffer + own.offset, own.bytes);
    tell_staged();
    await_all(&RankHead::staged);
    for (int r = 0; r < size_; r++) {
      Part p = piece(r, counts, first, block);
      if (r != me_ && p.bytes) std::memcpy(buffer + p.offset, segment.stage(r, turn_), p.bytes);
    }
    first += block;
  } while (first < longest);
}

void Group::reduce_small(std::byte *buffer) {
  size_t n = static_cast<size_t>(call_->op.elements), bytes = n * element_;
  next_turn();
  if (bytes) std::memcpy(segment.stage(me_, turn_), buffer, bytes);
  tell_staged();
  await_all(&RankHead::staged);
  if (!bytes) return;
  for (int r = 0; r < size_; r++) sources_[static_cast<size_t>(r)] = segment.stage(r, turn_);
  kernel_(buffer, nullptr, sources_.data(), size_, n);
}

// reduce_parts implements reduce-scatter and, with counts == nullptr, all-reduce. In a turn, every rank stages a block
// of each other rank's part. It reduces the block of its own part from all stages. In an all-reduce, it then publishes
// the result.
void Group::reduce_parts(std::byte *buffer, const int64_t *counts) {
  bool give_back = call_->op.kind == HETERO_ALL_REDUCE;
  size_t block = std::max(cache_line, segment.stage_bytes() / static_cast<size_t>(size_) / cache_line * cache_line),
         longest = 0;
  for (int r = 0; r < size_; r++) longest = std::max(longest, part(r, counts).bytes);
  next_turn();
  stage_parts(buffer, counts, 0, block);
  tell_staged();
  for (size_t first = 0;; first += block) {
    await_all(&RankHead::staged);
    Part own = piece(me_, counts, first, block);
    if (own.bytes) {
      for (int r = 0; r < size_; r++)
        sources_[static_cast<size_t>(r)] =
            r == me_ ? buffer + own.offset : segment.stage(r, turn_) + block * static_cast<size_t>(me_);
      kernel_(buffer + own.offset, give_back ? segment.result(me_, turn_) : nullptr, sources_.data(), size_,
              own.bytes / element_);
    }
    if (give_back) mine().reduced.raise(turn_);
    bool more = first + block < longest;
    // Fill the next stage while other ranks still reduce. This is safe: the last readers of that stage finished before
    // they raised `staged` to this turn.
    if (more) {
      next_turn();
      stage_parts(buffer, counts, first + block, block);
      tell_staged();
    }
    if (give_back) {
      uint32_t ahead = more ? 1 : 0;
      turn_ -= ahead;
      await_all(&RankHead::reduced);
      fetch_results(buffer, counts, first, block);
      turn_ += ahead;
    }
    if (!more) return;
  }
}

void Group::stage_parts(const std::byte *buffer, const int64_t *counts, size_t first, size_t block) {
  for (int r = 0; r < size_; r++) {
    Part p = piece(r, counts, first, block);
    if (r != me_ && p.bytes)
      std::memcpy(segment.stage(me_, turn_) + block * static_cast<size_t>(r), buffer + p.offset, p.bytes);
  }
}

void Group::fetch_results(std::byte *buffer, const int64_t *counts, size_t first, size_t block) {
  for (int i = 1; i < size_; i++) { // start at different ranks, to spread the accesses
    int r = (me_ + i) % size_;
    Part p = piece(r, counts, first, block);
    if (p.bytes) std::memcpy(buffer + p.offset, segment.result(r, turn_), p.bytes);
  }
}

} // namespace hetero
