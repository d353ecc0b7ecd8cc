// run.cc: the operations. Everybody sends directly to everybody: as many bytes as on a ring, in one or two hops, and
// whoever reduces has the values of all ranks at hand, so that they can meet in the order of ranks. Gloo's own
// all-reduce adds along the ring instead, in another order for each chunk, and rounds bf16 at every hop.
#include <algorithm>
#include <cstring>

#include "context.h"

namespace hetero {

namespace {

// All-reduces of up to as many bytes over all ranks are reduced by every rank on its own: one hop instead of two.
constexpr size_t small_bytes = 64 << 10;
// What a rank takes from each other rank at a time; scratch memory is as large for every rank.
constexpr size_t block_bytes = 8 << 20;
constexpr size_t line = 64;

size_t element_bytes(int dtype) {
  switch (dtype) { // as tensor.DType
  case 2:
  case 5: return 8;
  case 3:
  case 4: return 2;
  case 8: return 1;
  default: return 4;
  }
}

} // namespace

void Context::perform(std::byte *buffer, const int64_t *counts) {
  const hetero_gloo_signature &op = call_->op;
  element_ = element_bytes(op.dtype);
  kernel_ = reduce_kernel(op.dtype, op.reduce);
  size_t bytes = static_cast<size_t>(op.elements) * element_;
  if (!bytes) return; // agreeing was all
  if (op.kind == HETERO_GLOO_ALL_REDUCE && bytes <= small_bytes / static_cast<size_t>(size_))
    reduce_small(buffer);
  else if (op.kind == HETERO_GLOO_ALL_REDUCE || op.kind == HETERO_GLOO_REDUCE_SCATTER)
    reduce_parts(buffer, counts);
  else
    gather(buffer, counts);
}

// part is what a rank owns: by the counts; the whole of what the root broadcasts; of an all-reduce a fair share in
// whole cache lines.
Context::Part Context::part(int rank, const int64_t *counts) const {
  const hetero_gloo_signature &op = call_->op;
  size_t all = static_cast<size_t>(op.elements) * element_;
  if (counts) {
    int64_t before = 0;
    for (int r = 0; r < rank; r++) before += counts[r];
    return {static_cast<size_t>(before) * element_, static_cast<size_t>(counts[rank]) * element_};
  }
  if (op.kind != HETERO_GLOO_ALL_REDUCE) return rank == op.root ? Part{0, all} : Part{all, 0};
  size_t share = (all / static_cast<size_t>(size_) + line - 1) / line * line;
  size_t from = std::min(all, share * static_cast<size_t>(rank));
  return {from, rank == size_ - 1 ? all - from : std::min(share, all - from)};
}

// gather serves all-gather and broadcast.
void Context::gather(std::byte *buffer, const int64_t *counts) {
  Part own = part(me_, counts);
  std::vector<Piece> send(static_cast<size_t>(size_), Piece{buffer + own.offset, own.bytes}), receive;
  for (int r = 0; r < size_; r++) {
    Part p = part(r, counts);
    receive.push_back({buffer + p.offset, p.bytes});
  }
  exchange(send, receive);
}

void Context::reduce_small(std::byte *buffer) {
  size_t n = static_cast<size_t>(call_->op.elements), bytes = n * element_, stride = (bytes + line - 1) / line * line;
  scratch_.resize(std::max(scratch_.size(), stride * static_cast<size_t>(size_)));
  std::vector<Piece> send(static_cast<size_t>(size_), Piece{buffer, bytes}), receive;
  std::vector<const void *> sources;
  for (int r = 0; r < size_; r++) {
    receive.push_back({scratch_.data() + stride * static_cast<size_t>(r), bytes});
    sources.push_back(r == me_ ? buffer : receive.back().data);
  }
  exchange(send, receive);
  kernel_(buffer, nullptr, sources.data(), size_, n);
}

// reduce_parts serves reduce-scatter and all-reduce, block by block: everybody sends to each rank a block of that
// rank's part; who owns it reduces, and in an all-reduce sends the result to everybody.
void Context::reduce_parts(std::byte *buffer, const int64_t *counts) {
  size_t longest = 0;
  for (int r = 0; r < size_; r++) longest = std::max(longest, part(r, counts).bytes);
  size_t block = std::min(block_bytes, (longest + line - 1) / line * line);
  scratch_.resize(std::max(scratch_.size(), block * static_cast<size_t>(size_)));
  std::vector<Piece> others(static_cast<size_t>(size_)), mine(static_cast<size_t>(size_)),
      results(static_cast<size_t>(size_));
  std::vector<const void *> sources(static_cast<size_t>(size_));
  for (size_t first = 0; first < longest; first += block) {
    auto piece = [&](int rank) {
      Part p = part(rank, counts);
      size_t from = std::min(first, p.bytes);
      return Piece{buffer + p.offset + from, std::min(block, p.bytes - from)};
    };
    Piece own = piece(me_);
    for (int r = 0; r < size_; r++) {
      auto i = static_cast<size_t>(r);
      others[i] = piece(r);
      mine[i] = {scratch_.data() + block * i, own.bytes};
      sources[i] = r == me_ ? own.data : mine[i].data;
      results[i] = own;
    }
    exchange(others, mine);
    if (own.bytes) kernel_(own.data, nullptr, sources.data(), size_, own.bytes / element_);
    if (call_->op.kind == HETERO_GLOO_ALL_REDUCE) exchange(results, others);
  }
}

} // namespace hetero
