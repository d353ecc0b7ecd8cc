// program.h: lists of launches, and their execution.
//
// A stream of this device has no thread. run() executes on the calling OS thread and its team, and returns when the
// work is done. Other OS threads use events to wait for a step during the run.
#pragma once

#include <cstdint>

#include "event.h"
#include "pace.h"
#include "steps.h"

namespace hetero {

class Program {
public:
  Program(const ht_step *steps, int32_t count) : steps_(steps, count) {}
  // Runs the steps, and adds the time of step i to elapsed_ns[i] unless elapsed_ns is null. After each launch, the
  // thread idles for the time that pace requires. If a step throws an exception, the events that later steps record
  // become failed. run then throws the error with the name of the step.
  void run(int64_t *elapsed_ns, Pace &pace, int64_t &waited_ns);

private:
  void run_step(const Step &step, int64_t &waited_ns);

  Steps steps_;
};

} // namespace hetero

// The objects of the C ABI.
struct ht_event {
  hetero::Event impl;
};
struct ht_program {
  hetero::Program impl;
};
