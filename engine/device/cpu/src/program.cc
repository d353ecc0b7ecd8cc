// program.cc: checks a list of steps once, then runs it as often as wanted.
#include "program.h"

#include <chrono>
#include <set>

#include "layout.h"
#include "requests.h"

namespace hetero {

Program::Step Program::checked(const ht_step &step) {
  if (step.kind == HT_STEP_RECORD || step.kind == HT_STEP_WAIT) {
    if (!step.event) throw Invalid("no event");
    return {step.kind, nullptr, 0, 0, nullptr, step.event};
  }
  if (step.kind != HT_STEP_LAUNCH)
    throw Invalid("got kind " + std::to_string(step.kind) + ", want a launch, a record or a wait");
  if (!step.kernel) throw Invalid("no kernel");
  const Kernel &k = *step.kernel->impl;
  Step s{step.kind, step.kernel, addresses_.size(), addresses_.size() + k.in.size(), step.workspace, nullptr};
  auto copy = [&](const char *side, void *const *list, const Specs &specs) {
    for (size_t i = 0; i < specs.size(); i++) {
      void *p = list ? list[i] : nullptr;
      std::string operand = op_name(step.kernel->op) + ": " + side + " " + std::to_string(i);
      if (!p) throw Invalid(operand + ": no address");
      int64_t size = specs[i].dtype == HT_OPAQUE ? 64 : dtype_size(specs[i].dtype);
      if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(size))
        throw Invalid(operand + ": address is not a multiple of " + std::to_string(size));
      addresses_.push_back(p);
    }
  };
  copy("input", step.in, k.in);
  copy("output", step.out, k.out);
  if (k.workspace > 0 && (!step.workspace || reinterpret_cast<uintptr_t>(step.workspace) % 64))
    throw Invalid(op_name(step.kernel->op) + ": workspace: want " + std::to_string(k.workspace) +
                  " bytes at a multiple of 64");
  return s;
}

Program::Program(const ht_step *steps, int32_t count) {
  if (count < 0 || (count > 0 && !steps)) throw Invalid("got " + std::to_string(count) + " steps and no list");
  std::set<ht_event *> recorded, waited;
  for (int32_t i = 0; i < count; i++) {
    try {
      steps_.push_back(checked(steps[i]));
      ht_event *event = steps_.back().event;
      if (steps[i].kind == HT_STEP_RECORD && waited.count(event) && !recorded.count(event))
        throw Invalid("records an event that an earlier step waits for: it would wait for ever");
      if (steps[i].kind == HT_STEP_RECORD) recorded.insert(event);
      if (steps[i].kind == HT_STEP_WAIT) waited.insert(event);
    } catch (const Invalid &e) {
      throw Invalid("step " + std::to_string(i) + ": " + e.what());
    }
  }
}

namespace {

using Clock = std::chrono::steady_clock;

int64_t since(Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count();
}

} // namespace

void Program::run_step(const Step &step, int64_t &waited_ns) {
  switch (step.kind) {
  case HT_STEP_LAUNCH:
    step.kernel->impl->run({addresses_.data() + step.in, addresses_.data() + step.out, step.workspace, nullptr});
    break;
  case HT_STEP_RECORD: step.event->impl.settle(Event::complete); break;
  case HT_STEP_WAIT: {
    Event::State state = step.event->impl.state();
    if (state == Event::pending) {
      auto before = Clock::now();
      state = step.event->impl.wait(-1);
      waited_ns += since(before);
    }
    if (state == Event::failed) throw std::runtime_error("waited for an event of a program that failed");
    break;
  }
  }
}

void Program::run(int64_t *elapsed_ns, Pace &pace, int64_t &waited_ns) {
  // Who waits for an event of this run must not take the previous run's completion for it.
  for (const Step &s : steps_)
    if (s.kind == HT_STEP_RECORD) s.event->impl.announce();
  double slowdown = pace.factor();
  bool timed = elapsed_ns || slowdown > 1;
  Clock::time_point before;
  if (timed) before = Clock::now();
  for (size_t i = 0; i < steps_.size(); i++) {
    try {
      run_step(steps_[i], waited_ns);
    } catch (const std::exception &e) {
      for (size_t j = i; j < steps_.size(); j++)
        if (steps_[j].kind == HT_STEP_RECORD) steps_[j].event->impl.settle(Event::failed);
      std::string name = steps_[i].kernel ? op_name(steps_[i].kernel->op) : "wait";
      throw std::runtime_error("step " + std::to_string(i) + " (" + name + "): " + e.what());
    }
    if (!timed) continue;
    if (slowdown > 1 && steps_[i].kind == HT_STEP_LAUNCH) pace.worked(since(before), slowdown);
    auto now = Clock::now();
    if (elapsed_ns) elapsed_ns[i] += std::chrono::duration_cast<std::chrono::nanoseconds>(now - before).count();
    before = now;
  }
}

} // namespace hetero
