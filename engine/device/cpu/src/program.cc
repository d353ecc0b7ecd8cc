// program.cc
#include "program.h"

#include <chrono>

namespace hetero {

namespace {

using Clock = std::chrono::steady_clock;

int64_t since(Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count();
}

} // namespace

void Program::run_step(const Step &step, int64_t &waited_ns) {
  switch (step.kind) {
  case HT_STEP_LAUNCH: steps_.launch(step, nullptr); break;
  case HT_STEP_RECORD: step.event->impl.settle(Event::complete); break;
  case HT_STEP_WAIT: {
    Event::State state = step.event->impl.state();
    if (state == Event::pending) {
      auto before = Clock::now();
      state = step.event->impl.wait(-1);
      waited_ns += since(before);
    }
    if (state == Event::failed)
      throw std::runtime_error("event: not recorded, because the program that records the event failed");
    break;
  }
  }
}

void Program::run(int64_t *elapsed_ns, Pace &pace, int64_t &waited_ns) {
  // Make all events of this run pending, so that a waiter does not see the completion of the previous run.
  for (const Step &s : steps_.list)
    if (s.kind == HT_STEP_RECORD) s.event->impl.announce();
  double slowdown = pace.factor();
  bool timed = elapsed_ns || slowdown > 1;
  Clock::time_point before;
  if (timed) before = Clock::now();
  for (size_t i = 0; i < steps_.list.size(); i++) {
    try {
      run_step(steps_.list[i], waited_ns);
    } catch (const std::exception &e) {
      for (size_t j = i; j < steps_.list.size(); j++)
        if (steps_.list[j].kind == HT_STEP_RECORD) steps_.list[j].event->impl.settle(Event::failed);
      throw std::runtime_error(steps_.name(i) + ": " + e.what());
    }
    if (!timed) continue;
    if (slowdown > 1 && steps_.list[i].kind == HT_STEP_LAUNCH) pace.worked(since(before), slowdown);
    auto now = Clock::now();
    if (elapsed_ns) elapsed_ns[i] += std::chrono::duration_cast<std::chrono::nanoseconds>(now - before).count();
    before = now;
  }
}

} // namespace hetero
