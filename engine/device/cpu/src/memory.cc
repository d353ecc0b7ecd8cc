// memory.cc: allocates large blocks directly from the kernel, on huge pages if they are available. With pages of 4 KiB,
// address translation takes several percent of a step.
#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "headroom.h"

namespace hetero {

namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kBig = size_t{1} << 20;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

} // namespace

void *allocate(int64_t bytes) {
  size_t n = static_cast<size_t>(bytes);
  if (n < kBig) return std::aligned_alloc(64, round_up(n ? n : 1, 64));
  size_t length = round_up(n, kHuge), mapped = length + kHuge;
  if (addresses_limited()) mapped += kHeadroom; // released again below, so that this much stays free
  void *p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  auto start = reinterpret_cast<uintptr_t>(p), aligned = round_up(start, kHuge);
  if (aligned > start) munmap(p, aligned - start);
  munmap(reinterpret_cast<void *>(aligned + length), start + mapped - (aligned + length));
  auto *block = reinterpret_cast<void *>(aligned);
#ifdef MADV_HUGEPAGE
  madvise(block, length, MADV_HUGEPAGE); // fails if huge pages are disabled, which costs only speed
#endif
  return block;
}

void release(void *p, int64_t bytes) {
  size_t n = static_cast<size_t>(bytes);
  if (n < kBig)
    std::free(p);
  else
    munmap(p, round_up(n, kHuge));
}

} // namespace hetero
