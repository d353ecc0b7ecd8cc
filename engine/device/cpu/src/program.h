// program.h: lists of launches, and running them.
//
// A stream of this device has no thread of its own: run() executes on the calling OS thread and its OpenMP team and is
// done when it returns. Events still matter, to other OS threads that wait for a step in mid-program.
#pragma once

#include <cstdint>
#include <vector>

#include "event.h"
#include "kernel.h"
#include "pace.h"

namespace hetero {

class Program {
public:
  // Copies the steps with their address lists. Throws Invalid naming the step that is wrong.
  Program(const ht_step *steps, int32_t count);
  // elapsed_ns[i] += time of step i, unless nullptr. After a launch the thread idles as pace demands. Throws what a kernel
  // throws, after settling all its events.
  void run(int64_t *elapsed_ns, Pace &pace, int64_t &waited_ns);

private:
  struct Step {
    int32_t kind;
    ht_kernel *kernel;
    size_t in, out; // first address in addresses_
    void *workspace;
    ht_event *event;
  };
  Step checked(const ht_step &step);
  void run_step(const Step &step, int64_t &waited_ns);

  std::vector<Step> steps_;
  std::vector<void *> addresses_;
};

} // namespace hetero

// The objects of the C ABI.
struct ht_kernel {
  ht_op op;
  std::unique_ptr<hetero::Kernel> impl;
};
struct ht_event {
  hetero::Event impl;
};
struct ht_program {
  hetero::Program impl;
};
