// crew.cc: interleaved comparisons of thread counts.
#include <algorithm>

#include "team.h"

namespace hetero {

namespace {

// A comparison has kTurns turns per thread count. A turn has kTurn windows. The first window of a turn is ignored,
// because the scheduler then divides the CPUs again among groups of processes.
constexpr int kTurns = 2, kTurn = 3;
// Seconds between two comparisons. The pause grows while the outcome stays the same, so that comparisons take a
// decreasing part of the time.
constexpr double kShortestPause = 2, kLongestPause = 8;
// Seconds of measured parallel regions before each decision on whether to start a comparison. They are so long that a
// short burst of load does not start a comparison.
constexpr double kRecent = 0.4;

} // namespace

void Crew::judge(double now, double window, double work) {
  if (left_ > 0) {
    Span &s = active_ == fewer_ ? with_fewer_ : with_more_;
    if (left_ % kTurn != 0) s.add(window, work);
    if (--left_ == 0)
      decide(now);
    else if (left_ % kTurn == 0)
      active_ = active_ == fewer_ ? more_ : fewer_;
    return;
  }
  recent_.add(window, work);
  if (recent_.window < kRecent) return;
  const double reached = recent_.reached();
  recent_ = {};
  const bool fewer = active_ > 1 && reached < 0.5 * active_; // otherwise, half as many threads cannot get more CPU time
  const bool more = active_ < size_;
  contended_ = fewer || more;
  if (!contended_ || now < next_) return;
  down_ = fewer && (!more || !down_); // if fewer and more threads are both possible, the directions alternate
  fewer_ = down_ ? (active_ + 1) / 2 : active_;
  more_ = down_ ? active_ : std::min(2 * active_, size_);
  before_ = active_;
  with_more_ = with_fewer_ = {};
  left_ = 2 * kTurns * kTurn;
  active_ = active_ == fewer_ ? more_ : fewer_;
}

void Crew::decide(double now) {
  active_ = with_fewer_.reached() > with_more_.reached() ? fewer_ : more_;
  pause_ = active_ == before_ ? std::clamp(2 * pause_, kShortestPause, kLongestPause) : kShortestPause;
  next_ = now + pause_;
}

} // namespace hetero
