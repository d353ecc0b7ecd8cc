// crew.cc: contests between counts of threads.
#include <algorithm>

#include "team.h"

namespace hetero {

namespace {

// Fewer threads must be this much better: at equal speed more stay, since load may end.
constexpr double kGain = 1.03;
// Windows of a contest, half of them for each count. Fewer decide by chance, more take longer with the worse count.
constexpr int kContest = 8;
// Seconds between two contests, which grow while the outcome stays the same: contests cost less and less.
constexpr double kShortestPause = 2, kLongestPause = 8;
// Seconds of regions, outside of a contest, from which it follows that a contest is due. A moment's load is not enough.
constexpr double kRecent = 0.25;

} // namespace

void Crew::judge(double now, double window, double work) {
  if (left_ > 0) {
    Share &s = active_ == fewer_ ? with_fewer_ : with_more_;
    s.window += window;
    s.work += work;
    active_ = active_ == fewer_ ? more_ : fewer_;
    if (--left_ == 0) decide(now);
    return;
  }
  recent_.window += window;
  recent_.work += work;
  if (recent_.window < kRecent) return;
  const double reached = recent_.reached();
  recent_ = {};
  if (now < next_) return;
  const bool fewer = active_ > 1 && reached < 0.5 * active_; // else half as many cannot get more
  const bool more = active_ < size_;
  if (!fewer && !more) return;
  down_ = fewer && (!more || !down_); // in turn where both are possible
  fewer_ = down_ ? (active_ + 1) / 2 : active_;
  more_ = down_ ? active_ : std::min(2 * active_, size_);
  before_ = active_;
  with_more_ = with_fewer_ = {};
  left_ = kContest;
}

void Crew::decide(double now) {
  active_ = with_fewer_.reached() > kGain * with_more_.reached() ? fewer_ : more_;
  pause_ = active_ == before_ ? std::clamp(2 * pause_, kShortestPause, kLongestPause) : kShortestPause;
  next_ = now + pause_;
}

} // namespace hetero
