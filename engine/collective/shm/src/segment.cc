// segment.cc: creates and maps the shared memory, and sets its flags.
#include "segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <new>
#include <string>
#include <system_error>

namespace hetero {

namespace {

constexpr uint64_t magic = 0x31304d4853544548; // "HETSHM01"
constexpr size_t page = 4096;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
size_t heads_bytes(int size) { return round_up(sizeof(Head) + static_cast<size_t>(size) * sizeof(RankHead), page); }
size_t total_bytes(int size, int64_t stage_bytes) {
  return heads_bytes(size) + 4 * static_cast<size_t>(size) * static_cast<size_t>(stage_bytes);
}

[[noreturn]] void refuse(int error, const std::string &what) {
  throw std::system_error(error, std::generic_category(), what);
}

void futex_wake(std::atomic<uint32_t> &word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// write_pages writes zeros to all pages of a file, or returns an errno.
int write_pages(int fd, size_t bytes) {
  const std::string zeros(256 * page, '\0');
  for (size_t at = 0; at < bytes;) {
    ssize_t wrote = pwrite(fd, zeros.data(), std::min(zeros.size(), bytes - at), static_cast<off_t>(at));
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) at += static_cast<size_t>(wrote);
  }
  return 0;
}

// take_pages allocates all pages of a file, or returns an errno. It blocks signals during the allocation, because on
// many kernels any signal with a handler interrupts the allocation (EINTR). Go's runtime uses such signals.
int take_pages(int fd, size_t bytes) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  // In a sandbox or on an old kernel, fallocate is not available. Writing a page also allocates it.
  if (error == ENOSYS || error == EPERM || error == EOPNOTSUPP) error = write_pages(fd, bytes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

} // namespace

void Counter::raise(uint32_t turn) {
  // These accesses and those of a waiting rank are sequentially consistent. Therefore, either this rank sees the
  // waiting rank, or the waiting rank sees the new value.
  value.store(turn);
  if (waiters.load() > 0) futex_wake(value);
}

void Counter::wake() { futex_wake(value); }

int Segment::create(int size, int64_t stage_bytes) {
  if (size < 1 || stage_bytes < 64 || stage_bytes % 64 != 0 || stage_bytes > (int64_t{1} << 40) / size)
    refuse(EINVAL, "got " + std::to_string(size) + " ranks and stages of " + std::to_string(stage_bytes) +
                       " bytes, want at least 1 rank, stages of a multiple of 64 bytes, and at most 1 TiB in total");
  // Some systems refuse to create memory that may become executable, so this flag forbids execution. Kernels before 6.3
  // do not know the flag.
  constexpr unsigned never_executed = 8; // MFD_NOEXEC_SEAL
  auto make = [](unsigned more) {
    return static_cast<int>(syscall(SYS_memfd_create, "hetero-train", MFD_CLOEXEC | MFD_ALLOW_SEALING | more));
  };
  int fd = make(never_executed);
  if (fd < 0 && errno == EINVAL) fd = make(0);
  if (fd < 0) refuse(errno, "create shared memory (memfd_create)");
  size_t bytes = total_bytes(size, stage_bytes);
  // Allocate the pages now. A lack of memory is then an error here, and not a fatal signal in the middle of a step.
  int error = ftruncate(fd, static_cast<off_t>(bytes)) < 0 ? errno : take_pages(fd, bytes);
  // Seal the file, so that no rank can shrink it while others use it.
  if (!error && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) error = errno;
  void *base = error ? MAP_FAILED : mmap(nullptr, heads_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!error && base == MAP_FAILED) error = errno;
  if (error) {
    close(fd);
    refuse(error, "allocate " + std::to_string(bytes) + " bytes of shared memory");
  }
  Head *head = new (base) Head{};
  head->size = size;
  head->stage_bytes = stage_bytes;
  head->magic = magic;
  auto *ranks = reinterpret_cast<RankHead *>(static_cast<std::byte *>(base) + sizeof(Head));
  for (int r = 0; r < size; r++) new (&ranks[r]) RankHead{};
  munmap(base, heads_bytes(size));
  return fd;
}

Segment::Segment(int fd, int rank, int size) : rank_(rank), size_(size) {
  struct stat info {};
  if (fstat(fd, &info) < 0) refuse(errno, "query the size of the shared memory");
  bytes_ = static_cast<size_t>(info.st_size);
  if (bytes_ < heads_bytes(size) || rank < 0 || rank >= size)
    refuse(EINVAL, "got rank " + std::to_string(rank) + " of " + std::to_string(size) + " and " +
                       std::to_string(bytes_) +
                       " bytes of shared memory, want a rank below the number of ranks and at least " +
                       std::to_string(heads_bytes(size)) + " bytes");
  base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base_ == MAP_FAILED) refuse(errno, "map " + std::to_string(bytes_) + " bytes of shared memory");
  if (head().magic != magic || head().size != size || bytes_ != total_bytes(size, head().stage_bytes)) {
    munmap(base_, bytes_);
    refuse(EINVAL, "the shared memory belongs to another group or version");
  }
}

Segment::~Segment() { munmap(base_, bytes_); }

RankHead &Segment::rank_head(int rank) const {
  return reinterpret_cast<RankHead *>(static_cast<std::byte *>(base_) + sizeof(Head))[rank];
}

std::byte *Segment::area(int rank, uint32_t which) const {
  size_t index = 4 * static_cast<size_t>(rank) + which;
  return static_cast<std::byte *>(base_) + heads_bytes(size_) + index * stage_bytes();
}

void Segment::set_state(int rank, uint32_t state, const char *text) {
  RankHead &r = rank_head(rank);
  if (r.state.load() != HETERO_SHM_ALIVE) return;
  if (rank == rank_) std::snprintf(r.text, sizeof r.text, "%s", text);
  uint32_t alive = HETERO_SHM_ALIVE, none = 0;
  if (!r.state.compare_exchange_strong(alive, state)) return;
  if (state != HETERO_SHM_LEFT) head().failed.compare_exchange_strong(none, static_cast<uint32_t>(rank) + 1);
  wake_all();
}

void Segment::wake_all() {
  for (int r = 0; r < size_; r++) {
    rank_head(r).staged.wake();
    rank_head(r).reduced.wake();
  }
}

} // namespace hetero
