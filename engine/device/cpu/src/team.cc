// team.cc: the part of GCC's OpenMP library that oneDNN and the kernels of this library use.
#include "team.h"

#include <string>

#include "headroom.h"
#include "status.h"

#if HT_OWN_TEAM

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <climits>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

extern "C" __attribute__((visibility("default"))) void GOMP_parallel_start(void (*)(void *), void *, unsigned);

namespace hetero {

namespace {

using Body = void (*)(void *);

constexpr int kMostThreads = 4096;
constexpr int64_t kWindow =
    100'000'000; // ns of regions between two calls of Crew::judge: long compared with a time slice
constexpr int64_t kShortRegion =
    50'000;                           // ns; shorter regions are not measured, because reading the CPU time takes 0.3 us
constexpr int64_t kNap = 100'000'000; // ns until an idle thread checks whether it is needed

int64_t clock_ns(clockid_t c) {
  timespec t{};
  clock_gettime(c, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// Takes one turn of spinning. kSpin assumes that a turn takes tens of cycles. During a turn, the thread does not
// disturb the memory system and the core's other threads.
void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  // The instruction yield takes one cycle on cores with one thread, so the thread would sleep after a few microseconds.
  // The instruction isb empties the pipeline, which takes about as long as pause on x86.
  __asm__ volatile("isb" ::: "memory");
#endif
}

void futex_wait(std::atomic<uint32_t> &word, uint32_t value, uint32_t bits, int64_t until_ns) {
  timespec until{until_ns / 1'000'000'000, until_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value, until_ns ? &until : nullptr, nullptr, bits);
}

void futex_wake(std::atomic<uint32_t> &word, uint32_t bits) {
  syscall(SYS_futex, &word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr, bits);
}

// Returns the number of turns for which a thread spins before it sleeps. The environment variables of GCC's OpenMP
// library determine it. The default takes about 0.1 ms at 25 ns per turn (Zen 5). This is about the time to wake a
// thread, and longer than the gaps between kernels.
int64_t spin_turns() {
  if (const char *s = std::getenv("GOMP_SPINCOUNT")) {
    char *end = nullptr;
    const long long n = std::strtoll(s, &end, 10);
    if (end != s && *end == 0 && n >= 0) return n;
    if (!std::strcmp(s, "infinite") || !std::strcmp(s, "infinity")) return INT64_MAX;
  }
  const char *policy = std::getenv("OMP_WAIT_POLICY");
  if (policy && !strcasecmp(policy, "passive")) return 0;
  if (policy && !strcasecmp(policy, "active")) return INT64_MAX;
  return 4000;
}
const int64_t kSpin = spin_turns();

class Team;

// The position of the calling OS thread in its region.
struct Place {
  int part = 0, parts = 1;
  Team *team = nullptr; // team of the region, if it has several parts; nullptr outside of such regions
  // The loop in progress (GOMP_loop_static_start).
  long start = 0, increment = 1, chunk = 0, count = 0, turn = 0;
};
thread_local Place place;
thread_local std::vector<Place> outer; // position before each region that this thread has begun
thread_local int wanted = 1;           // number of threads of the next regions
thread_local bool together = false;

// Describes a region: its number, the number of threads that are called to take part, and the number of its parts. The
// word 0 ends the team.
struct Word {
  uint64_t number;
  int called, parts;
  explicit Word(uint64_t w) : number(w >> 26), called(int(w >> 13 & 0x1fff)), parts(int(w & 0x1fff)) {}
  static uint64_t of(uint64_t number, int called, int parts) {
    return number << 26 | uint64_t(called) << 13 | uint64_t(parts);
  }
};

class Team {
public:
  explicit Team(int size) : size_(size), crew_(size), claims_(new Claim[size_t(size)]) {}
  ~Team() {
    word_.store(0);
    wake(size_);
    for (pthread_t t : threads_) pthread_join(t, nullptr);
  }
  // Starts the threads with signals blocked, because Go's signal handlers expect the stacks of Go's threads.
  void hire() {
    threads_.reserve(size_t(size_));
    want_addresses((size_ - 1) * stack_bytes());
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failure = 0;
    for (int i = 1; i < size_ && !failure; i++) {
      auto *start = new (std::nothrow) Start{this, i};
      pthread_t t;
      failure = start ? pthread_create(&t, nullptr, work, start) : ENOMEM;
      if (failure)
        delete start;
      else
        threads_.push_back(t);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (failure)
      throw std::runtime_error("thread team: got " + std::to_string(threads_.size() + 1) + " threads, want " +
                               std::to_string(size_) + ": " + std::strerror(failure));
  }
  int size() const { return size_; }

  // Begins a region. The caller then runs part 0 and ends the region.
  void begin(Body body, void *data, int parts, bool all) {
    body_ = body;
    data_ = data;
    number_++;
    measured_ = metered_ || last_region_ >= kShortRegion;
    counts_ = measured_ && !all; // if all threads are called, thread counts cannot be compared
    region_work_ns_.store(0, std::memory_order_relaxed);
    began_ = clock_ns(CLOCK_MONOTONIC);
    if (measured_) own_began_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (metered_) meter_ns_ += own_began_ - outside_began_;
    longest_ns_.store(0, std::memory_order_relaxed);
    left_.store(uint32_t(parts), std::memory_order_relaxed);
    unclaimed_.store(parts - 1, std::memory_order_relaxed);
    claims_[0].number.store(number_, std::memory_order_relaxed);
    const int called = all ? size_ : crew_.active();
    word_.store(Word::of(number_, called, parts));
    wake(called < parts ? called : parts);
    place = {};
    place.parts = parts;
    place.team = this;
  }

  void end() {
    const int parts = place.parts;
    if (measured_) note_part(clock_ns(CLOCK_THREAD_CPUTIME_ID) - own_began_);
    finished();
    take(0, parts, number_);
    await_rest();
    if (metered_) {
      meter_ns_ += longest_ns_.load(std::memory_order_relaxed);
      outside_began_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    }
    last_region_ = clock_ns(CLOCK_MONOTONIC) - began_;
    if (!counts_) return;
    window_ns_ += last_region_;
    work_ns_ += region_work_ns_.load(std::memory_order_relaxed);
    if (window_ns_ < kWindow) return;
    crew_.judge(1e-9 * double(began_ + last_region_), 1e-9 * double(window_ns_), 1e-9 * double(work_ns_));
    window_ns_ = work_ns_ = 0;
    spin_.store(crew_.contended() ? kSpin / 16 : kSpin, std::memory_order_relaxed);
  }

  // The functions of Meter.
  void start_meter() {
    metered_ = true;
    meter_ns_ = 0;
    outside_began_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  }
  int64_t stop_meter() {
    metered_ = false;
    return meter_ns_ + clock_ns(CLOCK_THREAD_CPUTIME_ID) - outside_began_;
  }

  void barrier(int parts) {
    // If there are unclaimed parts, call all threads, because all threads called so far may already be waiting at this
    // barrier.
    if (unclaimed_.load() > 0 && Word(word_.load()).called < parts) {
      counts_ = false;
      word_.store(Word::of(number_, size_, parts));
      wake(size_);
    }
    const uint32_t round = round_.load();
    if (arrived_.fetch_add(1) + 1 == uint32_t(parts)) {
      arrived_.store(0);
      round_.fetch_add(1);
      futex_wake(round_, FUTEX_BITSET_MATCH_ANY);
      return;
    }
    for (int64_t turn = 0; round_.load() == round; turn++) {
      if (turn < spin_.load(std::memory_order_relaxed))
        relax();
      else
        futex_wait(round_, round, FUTEX_BITSET_MATCH_ANY, 0);
    }
  }

private:
  struct alignas(64) Claim {
    std::atomic<uint64_t> number{0}; // number of the last region in which a thread took this part
  };
  struct Start {
    Team *team;
    int index;
  };

  static void *work(void *p) {
    std::unique_ptr<Start> start(static_cast<Start *>(p));
    start->team->serve(start->index);
    return nullptr;
  }

  static int64_t stack_bytes() {
    pthread_attr_t attributes;
    size_t bytes = 0;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    return int64_t(bytes);
  }

  // Returns the bit of a thread in the mask of threads to wake. Threads that are not called continue to sleep.
  uint32_t bit(int index) const { return 1u << (int64_t(index) * 32 / (size_ > 32 ? size_ : 32)); }

  void wake(int called) {
    if (sleepers_.load() == 0) return;
    signal_.fetch_add(1);
    futex_wake(signal_, called >= size_ ? FUTEX_BITSET_MATCH_ANY : bit(called - 1) * 2 - 1);
  }

  void serve(int me) {
    uint64_t seen = number_of_none();
    for (bool needed = false;;) {
      const uint64_t w = next_word(seen, me, needed);
      if (w == 0) return;
      seen = w;
      const Word region(w);
      if (me < region.parts && (me < region.called || needed)) take(me, region.parts, region.number);
      needed = false;
    }
  }
  static constexpr uint64_t number_of_none() { return 1; } // not a valid word, because regions have more than one part

  // Waits for a word other than seen, and returns this word. If no thread takes the remaining parts of the region
  // during a nap, it sets needed and returns seen.
  uint64_t next_word(uint64_t seen, int me, bool &needed) {
    uint64_t w;
    for (int64_t turn = 0; turn < spin_.load(std::memory_order_relaxed); turn++) {
      if ((w = word_.load()) != seen) return w;
      relax();
    }
    for (;;) {
      const int64_t until = clock_ns(CLOCK_MONOTONIC) + kNap;
      sleepers_.fetch_add(1);
      const uint32_t s = signal_.load();
      if ((w = word_.load()) == seen) futex_wait(signal_, s, bit(me), until);
      sleepers_.fetch_sub(1);
      if ((w = word_.load()) != seen) return w;
      if (unclaimed_.load() > 0 && clock_ns(CLOCK_MONOTONIC) >= until) {
        needed = true;
        return w;
      }
    }
  }

  // Runs the parts that no thread has taken, starting at part `first`.
  void take(int first, int parts, uint64_t number) {
    for (int k = 0; k < parts && unclaimed_.load(std::memory_order_relaxed) > 0; k++) {
      const int i = first + k < parts ? first + k : first + k - parts;
      uint64_t last = claims_[i].number.load(std::memory_order_relaxed);
      if (last >= number || !claims_[i].number.compare_exchange_strong(last, number)) continue;
      unclaimed_.fetch_sub(1, std::memory_order_relaxed);
      const Place back = place;
      place = {};
      place.part = i;
      place.parts = parts;
      place.team = this;
      const int64_t before = measured_ ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
      body_(data_);
      if (measured_) note_part(clock_ns(CLOCK_THREAD_CPUTIME_ID) - before);
      place = back;
      finished();
    }
  }

  // Adds the CPU time of a part to that of its region.
  void note_part(int64_t ns) {
    region_work_ns_.fetch_add(ns, std::memory_order_relaxed);
    int64_t longest = longest_ns_.load(std::memory_order_relaxed);
    while (longest < ns && !longest_ns_.compare_exchange_weak(longest, ns, std::memory_order_relaxed)) {
    }
  }

  void finished() {
    if (left_.fetch_sub(1) == 1 && waiting_.load()) futex_wake(left_, FUTEX_BITSET_MATCH_ANY);
  }

  void await_rest() {
    for (int64_t turn = 0; turn < spin_.load(std::memory_order_relaxed); turn++) {
      if (left_.load(std::memory_order_acquire) == 0) return;
      relax();
    }
    waiting_.store(true);
    for (uint32_t l; (l = left_.load()) != 0;) futex_wait(left_, l, FUTEX_BITSET_MATCH_ANY, 0);
    waiting_.store(false);
  }

  const int size_;
  Crew crew_;
  std::atomic<int64_t> spin_{kSpin}; // turns of spinning
  std::vector<pthread_t> threads_;

  // The region in progress. The caller writes these fields before word_. Threads read them only after claiming a part.
  // This is safe, because the region cannot end before this part is finished.
  Body body_ = nullptr;
  void *data_ = nullptr;
  bool measured_ = false;
  std::atomic<bool> counts_{false}; // whether the region counts for the measured window
  uint64_t number_ = 0;
  int64_t began_ = 0, own_began_ = 0;   // start of the region, ns of the clock and of the caller's CPU time
  int64_t last_region_ = 0;             // length of the last region, ns
  bool metered_ = false;                // whether a Meter runs
  int64_t meter_ns_ = 0;                // time of this Meter up to the end of the last region
  int64_t outside_began_ = 0;           // end of the last region, or start of the Meter, ns of the caller's CPU time
  int64_t window_ns_ = 0, work_ns_ = 0; // ns of regions since the last call of Crew::judge
  std::unique_ptr<Claim[]> claims_;     // claims of the parts
  alignas(64) std::atomic<uint64_t> word_{1};
  std::atomic<int> unclaimed_{0};             // number of unclaimed parts; may lag behind claims_
  alignas(64) std::atomic<uint32_t> left_{0}; // number of unfinished parts
  std::atomic<bool> waiting_{false};          // whether the caller sleeps until left_ is 0
  std::atomic<int64_t> region_work_ns_{0};    // CPU time of the region's parts, ns
  std::atomic<int64_t> longest_ns_{0};        // CPU time of the region's longest part, ns
  alignas(64) std::atomic<uint32_t> signal_{0}, sleepers_{0};
  std::atomic<uint32_t> arrived_{0}, round_{0};
};

thread_local std::unique_ptr<Team> own; // team of the calling OS thread

// Sets [from, to) to the next iterations of a loop for this part. Returns false if none is left.
bool next_chunk(long *from, long *to) {
  Place &p = place;
  long first, last;
  if (p.chunk == 0) {
    if (p.turn++ > 0) return false;
    const long each = p.count / p.parts, more = p.count % p.parts;
    first = each * p.part + (p.part < more ? p.part : more);
    last = first + each + (p.part < more ? 1 : 0);
  } else {
    first = (p.turn++ * p.parts + p.part) * p.chunk;
    last = first + p.chunk < p.count ? first + p.chunk : p.count;
  }
  if (first >= last) return false;
  *from = p.start + first * p.increment;
  *to = p.start + last * p.increment;
  return true;
}

} // namespace

int most_threads() { return kMostThreads; }

void use_team(int n) {
  if (wanted == n && (n == 1 || (own && own->size() == n))) return;
  void *used = dlsym(RTLD_DEFAULT, "GOMP_parallel_start");
  if (used != reinterpret_cast<void *>(&GOMP_parallel_start))
    throw Unavailable(
        "this process has loaded another OpenMP library, whose threads oneDNN would use in addition to those "
        "of this library");
  if (n > 1 && (!own || own->size() != n)) {
    own.reset();
    wanted = 1;
    own = std::make_unique<Team>(n);
    try {
      own->hire();
    } catch (...) {
      own.reset();
      throw;
    }
  }
  wanted = n;
}

Together::Together(bool wanted) : before_(together) { together = together || wanted; }
Together::~Together() { together = before_; }

Alone::Alone() : before_(wanted) { wanted = 1; }
Alone::~Alone() { wanted = before_; }

Meter::Meter() : start_ns_(clock_ns(CLOCK_THREAD_CPUTIME_ID)) {
  if (own) own->start_meter();
}
int64_t Meter::stop() { return own ? own->stop_meter() : clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns_; }

} // namespace hetero

using namespace hetero;

extern "C" {

#pragma GCC visibility push(default)

void GOMP_parallel_start(void (*body)(void *), void *data, unsigned threads) {
  outer.push_back(place);
  const int n = threads ? int(threads) : wanted;
  // A nested region runs on this thread alone. So does a region that requests more threads than the team has, which
  // only code outside of this library does.
  if (n == 1 || place.team || !own || n > own->size()) {
    Team *team = place.team;
    place = {};
    place.team = team;
    return;
  }
  own->begin(body, data, n, together);
}

void GOMP_parallel_end() {
  if (place.parts > 1) place.team->end();
  place = outer.back();
  outer.pop_back();
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned) {
  GOMP_parallel_start(body, data, threads);
  body(data);
  GOMP_parallel_end();
}

void GOMP_barrier() {
  if (place.parts > 1) place.team->barrier(place.parts);
}

bool GOMP_loop_static_start(long start, long end, long increment, long chunk, long *from, long *to) {
  Place &p = place;
  p.start = start;
  p.increment = increment;
  p.chunk = chunk;
  p.turn = 0;
  p.count = (end - start + increment + (increment > 0 ? -1 : 1)) / increment;
  return next_chunk(from, to);
}
bool GOMP_loop_static_next(long *from, long *to) { return next_chunk(from, to); }
void GOMP_loop_end_nowait() {}

int omp_get_max_threads() { return place.team ? place.team->size() : wanted; }
int omp_get_num_threads() { return place.parts; }
int omp_get_thread_num() { return place.part; }
int omp_in_parallel() { return place.team != nullptr; }
void omp_set_num_threads(int n) { wanted = n > 0 ? n : 1; }

#pragma GCC visibility pop
}

#else // another OpenMP library

#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

namespace hetero {

int most_threads() { return omp_get_thread_limit(); }

// Starts the workers with signals blocked, because Go's signal handlers expect the stacks of Go's threads. If OpenMP
// binds threads (OMP_PROC_BIND), it may bind the workers. It must not bind this thread, because Go starts other threads
// from this thread, which would inherit the affinity.
void use_team(int n) {
  static thread_local int team = 0;
  if (team == n) return;
  omp_set_dynamic(0);
  omp_set_num_threads(n);
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  cpu_set_t affinity;
  bool have_affinity = sched_getaffinity(0, sizeof affinity, &affinity) == 0;
  int got = 0;
#pragma omp parallel
  {
#pragma omp single
    got = omp_get_num_threads();
  }
  if (have_affinity) sched_setaffinity(0, sizeof affinity, &affinity);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (got != n)
    throw std::runtime_error("thread team: got " + std::to_string(got) + " threads, want " + std::to_string(n));
  team = n;
}

Together::Together(bool) {}
Together::~Together() {}

Alone::Alone() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
Alone::~Alone() { omp_set_num_threads(before_); }

// The threads of other OpenMP libraries do not report CPU time, so the meter uses a clock.
static int64_t clock_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}
Meter::Meter() : start_ns_(clock_ns()) {}
int64_t Meter::stop() { return clock_ns() - start_ns_; }

} // namespace hetero

#endif
