// team.h: the threads of a launch, also on CPUs that other processes use.
//
// A parallel region has a fixed number of parts, one for each thread of the team, so results depend on the size of the team alone.
// Which thread runs a part is decided while the region runs: each thread starts with its own part, then takes any part that has not
// been started. A thread that waits for a CPU therefore delays a region only by a part that it has begun.
//
// Where the threads of a team get less than half of a CPU each, half as many may be faster, which then run two parts each (Crew).
//
// The kernels of this library and oneDNN use it through the interface of GCC's OpenMP library, which team.cc implements. Where
// either was compiled for another OpenMP library, HT_OWN_TEAM is 0 and that library's threads are used.
#pragma once

#include <cstdint>

namespace hetero {

// Gives the calling OS thread a team of n threads, itself included. Throws std::runtime_error where the system refuses a thread,
// and Unavailable where oneDNN would use another OpenMP library's threads.
void use_team(int n);
int most_threads(); // of a team

// While one exists on the calling OS thread, all threads of its team take part in each region at once. For code whose parts wait for
// one another without GOMP_barrier, as some of oneDNN's do. Such a region ends without it too, but may take a nap (team.cc) first.
class Together {
public:
  explicit Together(bool wanted = true);
  ~Together();
  Together(const Together &) = delete;
  Together &operator=(const Together &) = delete;

private:
  bool before_;
};

// While one exists, the calling OS thread has a team of one: for primitives that another loop runs side by side.
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
// Where the active threads together get less than half of a CPU each, they compete with half as many: the two counts take turns, so
// that load that changes meets both. The winner stays until the next contest.
class Crew {
public:
  explicit Crew(int size) : size_(size), active_(size) {}
  int active() const { return active_; }
  bool contended() const {
    return contended_;
  } // others use the CPUs too: a thread that spins takes time from them and from its own team
  // A window of regions ended at `now` seconds. It lasted `window` seconds, in which all threads together worked for `work` seconds of
  // CPU time.
  void judge(double now, double window, double work);

private:
  struct Share {
    double window = 0, work = 0; // seconds
    void add(double seconds, double worked) { window += seconds, work += worked; }
    double reached() const { return window > 0 ? work / window : 0; } // CPUs
  };
  void decide(double now);

  int size_, active_;
  int more_ = 0, fewer_ = 0; // the counts that compete, 0 outside of a contest
  int before_ = 0;           // the count when the contest began
  int left_ = 0;             // windows of the contest
  bool contended_ = false;
  Share with_more_, with_fewer_;
  Share recent_;      // outside of a contest
  bool down_ = false; // the last contest was against fewer
  double next_ = 0;   // seconds: no contest earlier
  double pause_ = 0;  // between contests
};

} // namespace hetero
