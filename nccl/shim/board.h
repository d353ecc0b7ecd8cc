// board.h: memory that the ranks of a fake communicator have in common, be they threads or processes, and how they move data through it, a piece
// at a time. Nothing of it is left behind, whoever is killed: it is a memfd, opened by the others through /proc.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake {

constexpr int kRanks = 16;           // at most, of a communicator
constexpr size_t kPiece = 256 << 10; // bytes of a rank's data that are there at once

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter };

// What all ranks must agree in.
struct Call {
  Kind kind;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  bool operator==(const Call &o) const {
    return kind == o.kind && count == o.count && type == o.type && op == o.op && root == o.root;
  }
};

struct Seat {
  std::atomic<int> joined, gpu;       // gpu: its number in its machine
  std::atomic<uint64_t> given, taken; // pieces that this rank has put here, and has taken from all others
  uint64_t host;                      // a hash
  Call call;
  alignas(64) char data[kPiece];
};

struct Shared {
  uint64_t nonce;
  std::atomic<uint32_t> changed; // a futex
  Seat seats[kRanks];
};

// A rank's view of it.
class Board {
public:
  // A name for the others; the memory is there until the process ends or forget is called.
  static std::string make();
  static void forget(const std::string &name);

  Board(const std::string &name, int rank, int size); // throws where there is no such memory
  ~Board();
  Board(const Board &) = delete;

  void join(uint64_t host);
  bool complete() const; // all have joined

  enum class End { done, stopped, unlike, one_gpu };
  // Performs a call on the calling thread, in the order of ranks. stopped is asked again and again while other ranks are waited for. two_ranks:
  // several of them may use one GPU.
  End perform(const Call &, const char *from, char *to, int gpu, bool two_ranks, const std::function<bool()> &stopped);

private:
  bool wait(const std::function<bool(const Seat &)> &ready, const std::function<bool()> &stopped);
  void tell();
  void take(const Call &, size_t first, size_t n, char *to) const;

  const int rank_, size_;
  Shared *shared_ = nullptr;
  uint64_t piece_ = 0;
};

size_t bytes_of(ncclDataType_t);

} // namespace fake
