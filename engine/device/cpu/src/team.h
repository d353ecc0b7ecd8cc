// team.h: the threads of a launch, organised such that other processes on the CPUs delay them little.
//
// A parallel region has one part for each thread of the team. Results therefore depend only on the size of the team.
// Each thread starts with its own part, and then takes any part that no thread has started. A thread that waits for a
// CPU therefore delays a region by at most one part.
//
// If each thread of a team gets less than half a CPU, half as many threads may be faster. Each of them then takes two
// parts (see Crew).
//
// The kernels of this library and oneDNN use the team through the interface of GCC's OpenMP library, which team.cc
// implements. If the kernels or oneDNN were compiled for another OpenMP library, HT_OWN_TEAM is 0, and that library
// provides the threads.
#pragma once

#include <cstdint>

namespace hetero {

// Gives the calling OS thread a team of n threads, including itself. Throws std::runtime_error if the system refuses to
// create a thread, and Unavailable if oneDNN would use the threads of another OpenMP library.
void use_team(int n);
int most_threads(); // largest size of a team

// While an object of this class exists, all threads of the calling OS thread's team take part in each region at the
// same time. Use it for code whose parts wait for each other without GOMP_barrier, such as some code of oneDNN. Without
// this object, such a region also ends, but possibly only after a nap (see team.cc).
class Together {
public:
  explicit Together(bool wanted = true);
  ~Together();
  Together(const Together &) = delete;
  Together &operator=(const Together &) = delete;

#if HT_OWN_TEAM // other OpenMP libraries always run all threads at the same time
private:
  bool before_;
#endif
};

// While an object of this class exists, the calling OS thread has a team of one. Use it for primitives that another
// loop runs in parallel.
class Alone {
public:
  Alone();
  ~Alone();
  Alone(const Alone &) = delete;
  Alone &operator=(const Alone &) = delete;

private:
  int before_;
};

// Measures the time that work of the calling OS thread and its team would take on idle CPUs. This is the CPU time of
// the caller outside of regions, plus the CPU time of the longest part of each region. Waiting for a CPU does not
// count. If another OpenMP library provides the threads, a Meter measures the elapsed time. Only one Meter exists at a
// time.
class Meter {
public:
  Meter(); // starts
  ~Meter() { stop(); }
  Meter(const Meter &) = delete;
  Meter &operator=(const Meter &) = delete;
  int64_t stop(); // returns the time, ns

private:
  int64_t start_ns_;
};

// Decides how many threads of a team compute, from the CPU time that the threads used. It does not read a clock: the
// caller passes the times.
//
// If each active thread gets less than half a CPU, Crew compares the present number of threads with half of it. The two
// thread counts alternate, so that a change of load affects both. The faster count is used until the next comparison.
class Crew {
public:
  explicit Crew(int size) : size_(size), active_(size) {}
  int active() const { return active_; }
  bool contended() const { return contended_; } // other processes also use the CPUs, so long spinning wastes CPU time
  // Reports a window of regions that ended at time `now`, in seconds. The window lasted `window` seconds, in which all
  // threads together used `work` seconds of CPU time.
  void judge(double now, double window, double work);

private:
  struct Span {
    double window = 0, work = 0; // seconds
    void add(double seconds, double worked) { window += seconds, work += worked; }
    double reached() const { return window > 0 ? work / window : 0; } // CPUs in use
  };
  void decide(double now);

  int size_, active_;
  int more_ = 0, fewer_ = 0; // thread counts of the comparison; 0 outside of a comparison
  int before_ = 0;           // thread count before the comparison
  int left_ = 0;             // number of windows that the comparison still needs
  bool contended_ = false;
  Span with_more_, with_fewer_;
  Span recent_;       // regions outside of a comparison
  bool down_ = false; // whether the last comparison was with fewer threads
  double next_ = 0;   // earliest time of the next comparison, s
  double pause_ = 0;  // time between two comparisons, s
};

} // namespace hetero
