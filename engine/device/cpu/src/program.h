// program.h: lists of launches, and running them.
//
// A stream of this device has no thread: run() executes on the calling OS thread and its team, and returns when the
// work is done. Events still matter to other OS threads, which wait for a step during the run.
#pragma once

#include <cstdint>

#include "event.h"
#include "pace.h"
#include "steps.h"

namespace hetero {

class Program {
public:
  Program(const ht_step *steps, int32_t count) : steps_(steps, count) {}
  // elapsed_ns[i] += time of step i, unless nullptr. After a launch the thread idles as pace requires. Throws the
  // exception of a kernel, after settling all events of the program.
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
