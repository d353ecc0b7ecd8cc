// board.h: shared memory of the ranks of a fake communicator, which are threads or processes. The ranks exchange data
// through it, one piece at a time. The memory is a memfd, which other processes open through /proc. Killed processes
// therefore leave nothing behind.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake {

constexpr int kRanks = 16;           // maximum ranks of a communicator
constexpr size_t kPiece = 256 << 10; // bytes of a rank's data in the shared memory at a time

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter };

// The properties of a call on which all ranks must agree.
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
  std::atomic<int> joined, gpu; // gpu: number of the GPU in the machine
  // Number of pieces that this rank has written here, and that it has read from all others.
  std::atomic<uint64_t> given, taken;
  uint64_t host; // hash of the host's name
  Call call;
  alignas(64) char data[kPiece];
};

struct Shared {
  uint64_t nonce;
  std::atomic<uint32_t> changed; // counter that every change increments, used as a futex
  Seat seats[kRanks];
};

// One rank's access to the shared memory.
class Board {
public:
  // Creates a board and returns its name for the other ranks. The memory exists until the process ends or forget is
  // called.
  static std::string make();
  static void forget(const std::string &name);

  Board(const std::string &name, int rank, int size); // throws if the name denotes no board
  ~Board();
  Board(const Board &) = delete;

  void join(uint64_t host);
  bool complete() const; // all ranks have joined

  enum class End { done, stopped, unlike, one_gpu };
  // Performs a call on the calling thread, in the order of ranks. While it waits for other ranks, it polls the function
  // stopped. If two_ranks is true, several ranks may use one GPU.
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
