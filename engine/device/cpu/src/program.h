// program.h: lists of launches, and running them.
//
// A stream of this device has no thread of its own: run() executes on the calling OS thread and its OpenMP team and is
// done when it returns. Events still matter, to other OS threads that wait for a step in mid-program.
#pragma once

#include <cstdint>

#include "event.h"
#include "pace.h"
#include "steps.h"

namespace hetero {

class Program {
public:
  Program(const ht_step *steps, int32_t count) : steps_(steps, count) {}
  // elapsed_ns[i] += time of step i, unless nullptr. After a launch the thread idles as pace demands. Throws what a kernel
  // throws, after settling all its events.
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
