// team.h: the threads of a launch, also on CPUs that other processes use.
//
// A parallel region has a fixed number of parts, one for each thread of the team, so results depend only on the size of
// the team. Threads choose parts while the region runs: each thread starts with its own part, then takes any part that
// no thread has started. A thread that waits for a CPU therefore delays a region by at most one part.
//
// If the threads of a team get less than half of a CPU each, half as many may be faster, with two parts each (Crew).
//
// The kernels of this library and oneDNN use the team through the interface of GCC's OpenMP library, which team.cc
// implements. If either was compiled for another OpenMP library, HT_OWN_TEAM is 0 and that library's threads are used.
#pragma once

#include <cstdint>

namespace hetero {

// Gives the calling OS thread a team of n threads, including itself. Throws std::runtime_error if the system refuses a
// thread, and Unavailable if oneDNN would use another OpenMP library's threads.
void use_team(int n);
int most_threads(); // of a team

// While an object exists on the calling OS thread, all threads of its team take part in each region at once. It is for
// code whose parts wait for each other without GOMP_barrier, as some of oneDNN's do. Without it such a region also
// ends, but may take a nap (team.cc) first.
class Together {
public:
  explicit Together(bool wanted = true);
  ~Together();
  Together(const Together &) = delete;
  Together &operator=(const Together &) = delete;

private:
  bool before_;
};

// While an object exists, the calling OS thread has a team of one: for primitives that another loop runs in parallel.
class Alone {
public:
  Alone();
  ~Alone();
  Alone(const Alone &) = delete;
  Alone &operator=(const Alone &) = delete;

private:
  int before_;
};

// Decides how many threads of a team compute, from the CPU time that they got. Pure: the caller measures.
//
// If the active threads get less than half of a CPU each, they are compared with half as many. The two counts
// alternate, so that changing load affects both. The winner stays until the next comparison.
class Crew {
public:
  explicit Crew(int size) : size_(size), active_(size) {}
  int active() const { return active_; }
  bool contended() const {
    return contended_;
  } // other processes use the CPUs, too: a spinning thread takes time from them and from its team
  // Reports a window of regions that ended at `now` seconds. It lasted `window` seconds, in which all threads together
  // used `work` seconds of CPU time.
  void judge(double now, double window, double work);

private:
  struct Span {
    double window = 0, work = 0; // seconds
    void add(double seconds, double worked) { window += seconds, work += worked; }
    double reached() const { return window > 0 ? work / window : 0; } // CPUs
  };
  void decide(double now);

  int size_, active_;
  int more_ = 0, fewer_ = 0; // the counts in the comparison, 0 outside of one
  int before_ = 0;           // the count before the comparison
  int left_ = 0;             // remaining windows of the comparison
  bool contended_ = false;
  Span with_more_, with_fewer_;
  Span recent_;       // outside of a comparison
  bool down_ = false; // the last comparison was with fewer threads
  double next_ = 0;   // seconds: earliest time of the next comparison
  double pause_ = 0;  // between comparisons
};

} // namespace hetero
