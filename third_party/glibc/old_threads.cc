// Lets libraries that were compiled with a later glibc run on glibc 2.28 (OLD_GLIBC=on of the Makefile, for releases).
//
// std::condition_variable of libstdc++ calls pthread_cond_clockwait, which glibc has since 2.30. This function calls
// glibc's function if there is one. Before 2.30, it waits on the wall clock, in slices of at most a second. After each
// slice, it returns as after a spurious wakeup, and the caller compares its own clock with the deadline. If the wall
// clock changes, a wait therefore neither ends early nor takes longer than the slice.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

namespace {

constexpr long kSecond = 1'000'000'000; // ns
using Wait = int (*)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const timespec *);

long clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

} // namespace

// Hidden, so that dlsym finds glibc's function, not this one.
extern "C" __attribute__((visibility("hidden"))) int
pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const timespec *deadline) {
  static const Wait theirs = reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (theirs) return theirs(cond, mutex, clock, deadline);
  // A deadline of years may exceed a long in ns, so its seconds are compared first.
  timespec now{};
  clock_gettime(clock, &now);
  const long seconds = deadline->tv_sec - now.tv_sec;
  long slice = kSecond;
  if (seconds < 2) slice = seconds * kSecond + deadline->tv_nsec - now.tv_nsec;
  if (seconds < 0 || slice <= 0) return ETIMEDOUT;
  if (slice > kSecond) slice = kSecond;
  const long until = clock_ns(CLOCK_REALTIME) + slice;
  const timespec wall{until / kSecond, until % kSecond};
  const int result = pthread_cond_timedwait(cond, mutex, &wall);
  return result == ETIMEDOUT ? 0 : result; // the next call determines whether the deadline has passed
}
