// headroom.cc
#include "headroom.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "status.h"

namespace hetero {

namespace {

struct Limit {
  int resource;
  const char *name;
  char flag; // option of the shell's ulimit
};
constexpr Limit kLimits[] = {{RLIMIT_AS, "RLIMIT_AS", 'v'}, {RLIMIT_DATA, "RLIMIT_DATA", 'd'}};

// Returns the limit in bytes, or -1 if there is none.
int64_t bytes_of(const Limit &l) {
  rlimit r{};
  return getrlimit(static_cast<decltype(RLIMIT_AS)>(l.resource), &r) == 0 && r.rlim_cur != RLIM_INFINITY
             ? static_cast<int64_t>(r.rlim_cur)
             : -1;
}

// Returns the bytes that count against a limit, or -1 if they are unknown.
int64_t held(const Limit &l) {
  std::FILE *f = std::fopen("/proc/self/statm", "r");
  if (!f) return -1;
  long pages = -1, data = -1;
  const bool read = std::fscanf(f, "%ld %*d %*d %*d %*d %ld", &pages, &data) == 2;
  std::fclose(f);
  return read ? (l.resource == RLIMIT_AS ? pages : data) * int64_t{sysconf(_SC_PAGESIZE)} : -1;
}

std::string mib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", double(bytes) / (1 << 20));
  return text;
}

} // namespace

bool addresses_limited() {
  for (const Limit &l : kLimits)
    if (bytes_of(l) >= 0) return true;
  return false;
}

std::string refusal_of(int64_t bytes) {
  const Limit *lowest = nullptr;
  int64_t least = 0;
  for (const Limit &l : kLimits) {
    const int64_t limit = bytes_of(l), used = limit < 0 ? -1 : held(l);
    if (used < 0 || (lowest && limit - used >= least)) continue;
    lowest = &l;
    least = limit - used;
  }
  std::string text = "the system did not grant " + std::to_string(bytes) + " bytes";
  if (!lowest || least >= bytes + kHeadroom) return text;
  const int64_t limit = bytes_of(*lowest), want = limit - least + bytes + kHeadroom;
  return text + ": " + lowest->name + " permits " + mib(limit) + " of addresses, this process has reserved " +
         mib(limit - least) + ", and " + mib(kHeadroom) + " stay free for Go's runtime; raise the limit (ulimit -" +
         lowest->flag + ' ' + std::to_string((want + 1023) / 1024) + " for this step)";
}

void want_addresses(int64_t bytes) {
  if (!addresses_limited()) return;
  const size_t n = static_cast<size_t>(bytes + kHeadroom);
  void *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw OutOfMemory(refusal_of(bytes));
  munmap(p, n);
}

} // namespace hetero
