// board.cc: data exchange between the ranks of a fake communicator.
#include "board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

namespace fake {

namespace {

constexpr long kLook = 5'000'000; // ns between two checks of the stop condition

std::mutex mutex;
std::map<std::string, int> made; // file descriptor of each board, by name

Shared *mapped(int fd) {
  void *p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return p == MAP_FAILED ? nullptr : static_cast<Shared *>(p);
}

float widen(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float f;
  std::memcpy(&f, &wide, sizeof f);
  return f;
}

uint16_t narrow(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof f);
  if (f != f) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T> T combine(T a, T b, ncclRedOp_t op) {
  if (op == ncclSum) return static_cast<T>(a + b);
  return op == ncclMax ? (b > a ? b : a) : (b < a ? b : a);
}

// Reduces elements first to first + n - 1 of all ranks' pieces, in the order of ranks.
template <class T> void reduce_as(const Seat *seats, int ranks, size_t first, size_t n, ncclRedOp_t op, char *out) {
  for (size_t i = 0; i < n; i++) {
    T acc{};
    for (int r = 0; r < ranks; r++) {
      T v;
      std::memcpy(&v, seats[r].data + (first + i) * sizeof(T), sizeof v);
      acc = r == 0 ? v : combine(acc, v, op);
    }
    std::memcpy(out + i * sizeof(T), &acc, sizeof acc);
  }
}

void reduce_bf16(const Seat *seats, int ranks, size_t first, size_t n, ncclRedOp_t op, char *out) {
  for (size_t i = 0; i < n; i++) {
    float acc = 0;
    for (int r = 0; r < ranks; r++) {
      uint16_t bits;
      std::memcpy(&bits, seats[r].data + (first + i) * 2, sizeof bits);
      acc = r == 0 ? widen(bits) : combine(acc, widen(bits), op);
    }
    const uint16_t bits = narrow(acc);
    std::memcpy(out + i * 2, &bits, sizeof bits);
  }
}

void reduce(const Seat *seats, int ranks, size_t first, size_t n, const Call &c, char *out) {
  switch (c.type) {
  case ncclFloat32: return reduce_as<float>(seats, ranks, first, n, c.op, out);
  case ncclFloat64: return reduce_as<double>(seats, ranks, first, n, c.op, out);
  case ncclInt32: return reduce_as<int32_t>(seats, ranks, first, n, c.op, out);
  case ncclInt64: return reduce_as<int64_t>(seats, ranks, first, n, c.op, out);
  case ncclUint8: return reduce_as<uint8_t>(seats, ranks, first, n, c.op, out);
  case ncclBfloat16: return reduce_bf16(seats, ranks, first, n, c.op, out);
  default: return;
  }
}

} // namespace

size_t bytes_of(ncclDataType_t t) {
  switch (t) {
  case ncclInt64:
  case ncclFloat64: return 8;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclUint8: return 1;
  default: return 4;
  }
}

std::string Board::make() {
  static std::atomic<uint64_t> count{0};
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "fake nccl", 1u /* MFD_CLOEXEC */));
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) throw std::runtime_error("no shared memory");
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t nonce = static_cast<uint64_t>(now.tv_nsec) << 32 ^ static_cast<uint64_t>(now.tv_sec) << 8 ^ ++count;
  Shared *s = mapped(fd);
  if (!s) throw std::runtime_error("no shared memory");
  s->nonce = nonce;
  munmap(s, sizeof *s);
  char name[96];
  std::snprintf(name, sizeof name, "%d %d %" PRIu64, static_cast<int>(getpid()), fd, nonce);
  const std::lock_guard<std::mutex> lock(mutex);
  made[name] = fd;
  return name;
}

void Board::forget(const std::string &name) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at = made.find(name);
  if (at == made.end()) return;
  close(at->second);
  made.erase(at);
}

Board::Board(const std::string &name, int rank, int size) : rank_(rank), size_(size) {
  int pid = 0, fd = -1;
  uint64_t nonce = 0;
  if (std::sscanf(name.c_str(), "%d %d %" SCNu64, &pid, &fd, &nonce) != 3 || size > kRanks || rank >= size)
    throw std::runtime_error("no id of this library's, or too many ranks");
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) throw std::runtime_error("the rank that made the id is gone");
  shared_ = mapped(own);
  close(own);
  if (shared_ && shared_->nonce == nonce) return;
  if (shared_) munmap(shared_, sizeof *shared_);
  throw std::runtime_error("the rank that made the id is gone");
}

Board::~Board() { munmap(shared_, sizeof *shared_); }

void Board::tell() {
  shared_->changed++;
  syscall(SYS_futex, &shared_->changed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Waits until ready returns true for the seats of all ranks, and then returns true. Returns false if stopped returns
// true first.
bool Board::wait(const std::function<bool(const Seat &)> &ready, const std::function<bool()> &stopped) {
  for (;;) {
    const uint32_t before = shared_->changed;
    if (stopped()) return false;
    if (std::all_of(shared_->seats, shared_->seats + size_, ready)) return true;
    const timespec limit{0, kLook};
    syscall(SYS_futex, &shared_->changed, FUTEX_WAIT, before, &limit, nullptr, 0);
  }
}

void Board::join(uint64_t host) {
  Seat &own = shared_->seats[rank_];
  own.host = host;
  own.joined = 1;
  tell();
}

bool Board::complete() const {
  return std::all_of(shared_->seats, shared_->seats + size_, [](const Seat &s) { return s.joined == 1; });
}

Board::End Board::perform(const Call &c, const char *from, char *to, int gpu, bool two_ranks,
                          const std::function<bool()> &stopped) {
  const size_t element = bytes_of(c.type), most = kPiece / element;
  const size_t all = c.kind == Kind::reduce_scatter ? c.count * static_cast<size_t>(size_) : c.count;
  const bool gives = c.kind != Kind::broadcast || c.root == rank_;
  Seat *seats = shared_->seats, &own = seats[rank_];
  for (size_t first = 0; first < all || first == 0; first += most) {
    const size_t n = std::min(most, all - first);
    own.call = c;
    own.gpu = gpu;
    if (gives) std::memcpy(own.data, from + first * element, n * element);
    own.given = ++piece_;
    tell();
    if (!wait([&](const Seat &s) { return s.given >= piece_; }, stopped)) return End::stopped;
    for (int r = 0; r < size_; r++) {
      if (!(seats[r].call == c)) return End::unlike;
      for (int other = 0; other < r && !two_ranks; other++)
        if (seats[other].host == seats[r].host && seats[other].gpu == seats[r].gpu) return End::one_gpu;
    }
    take(c, first, n, to);
    own.taken = piece_;
    tell();
    if (!wait([&](const Seat &s) { return s.taken >= piece_; }, stopped)) return End::stopped;
  }
  return End::done;
}

// Writes this rank's result for a piece of n elements, which begins at element `first` of the operands.
void Board::take(const Call &c, size_t first, size_t n, char *to) const {
  const Seat *seats = shared_->seats;
  const size_t element = bytes_of(c.type), rank = static_cast<size_t>(rank_);
  switch (c.kind) {
  case Kind::reduce:
    if (rank_ != c.root) return;
    [[fallthrough]];
  case Kind::all_reduce: return reduce(seats, size_, 0, n, c, to + first * element);
  case Kind::broadcast: std::memcpy(to + first * element, seats[c.root].data, n * element); return;
  case Kind::all_gather:
    for (size_t r = 0; r < static_cast<size_t>(size_); r++)
      std::memcpy(to + (r * c.count + first) * element, seats[r].data, n * element);
    return;
  case Kind::reduce_scatter: {
    const size_t begin = std::max(first, rank * c.count), end = std::min(first + n, (rank + 1) * c.count);
    if (begin < end) reduce(seats, size_, begin - first, end - begin, c, to + (begin - rank * c.count) * element);
    return;
  }
  }
}

} // namespace fake
