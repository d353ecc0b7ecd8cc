// run.cc: operations that are not small; enter.cc performs the small ones.
//
// Every rank sends directly to every other rank. A rank sends as many bytes as on a ring, but in one or two hops. The
// rank that reduces a part has the values of all ranks, and combines them in the order of ranks. Gloo's own all-reduce
// adds along the ring, in a different order for each chunk, and rounds bf16 at every hop.
#include <algorithm>
#include <cstring>

#include "context.h"

namespace hetero {

namespace {

// Number of bytes that a rank receives at a time from each other rank. It is large enough to amortise the cost of a
// message, and small enough for the caches. Scratch memory is twice this size for every rank.
constexpr size_t block_bytes = 1 << 20;

} // namespace

// perform runs an operation that is not small.
void Context::perform(std::byte *buffer, const int64_t *counts) {
  const hetero_signature &op = call_->op;
  if (!op.elements || size_ == 1) return; // with one rank, its values are already the result
  if (op.kind == HETERO_ALL_REDUCE || op.kind == HETERO_REDUCE_SCATTER)
    reduce_parts(buffer, counts);
  else
    gather(buffer, counts);
}

// gather implements all-gather and broadcast.
void Context::gather(std::byte *buffer, const int64_t *counts) {
  Part own = part(me_, counts);
  Pieces send(static_cast<size_t>(size_), Piece{buffer + own.offset, own.bytes}), receive;
  for (int r = 0; r < size_; r++) {
    Part p = part(r, counts);
    receive.push_back({buffer + p.offset, p.bytes});
  }
  exchange(std::move(send), std::move(receive));
}

// reduce_parts implements reduce-scatter and all-reduce, block by block. For each block of a part, all ranks send their
// values to the rank that owns the part. The owner reduces the block; in an all-reduce, it then sends the result to all
// ranks. While one block is reduced, the values of the next block and the results of the previous one are in transit.
void Context::reduce_parts(std::byte *buffer, const int64_t *counts) {
  bool give_back = call_->op.kind == HETERO_ALL_REDUCE;
  auto ranks = static_cast<size_t>(size_);
  size_t longest = 0;
  for (int r = 0; r < size_; r++) longest = std::max(longest, part(r, counts).bytes);
  size_t block = std::min(block_bytes, (longest + cache_line - 1) / cache_line * cache_line),
         blocks = (longest + block - 1) / block;
  scratch_.resize(std::max(scratch_.size(), 2 * block * ranks));
  auto piece = [&](int rank, size_t b) {
    Part p = part(rank, counts);
    size_t first = std::min(b * block, p.bytes);
    return Piece{buffer + p.offset + first, std::min(block, p.bytes - first)};
  };
  auto pieces = [&](size_t b) {
    Pieces list;
    for (int r = 0; r < size_; r++) list.push_back(piece(r, b));
    return list;
  };
  auto scratch = [&](size_t b) {
    Pieces list;
    for (size_t r = 0; r < ranks; r++)
      list.push_back({scratch_.data() + block * (ranks * (b % 2) + r), piece(me_, b).bytes});
    return list;
  };
  std::vector<const void *> sources(ranks);
  post(scatters_[0], pieces(0), scratch(0));
  for (size_t b = 0; b < blocks; b++) {
    if (b + 1 < blocks) post(scatters_[(b + 1) % 2], pieces(b + 1), scratch(b + 1));
    Exchange &scatter = scatters_[b % 2];
    finish(scatter);
    Piece own = piece(me_, b);
    for (size_t r = 0; r < ranks; r++) sources[r] = static_cast<int>(r) == me_ ? own.data : scatter.receive[r].data;
    if (own.bytes) kernel_(own.data, nullptr, sources.data(), size_, own.bytes / element_);
    if (!give_back) continue;
    post(gathers_[b % 2], Pieces(ranks, own), pieces(b));
    if (b > 0) finish(gathers_[(b + 1) % 2]);
  }
  if (give_back) finish(gathers_[(blocks + 1) % 2]);
}

} // namespace hetero
