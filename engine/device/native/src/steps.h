// steps.h: the list of steps of a program, which is checked once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel.h"

namespace hetero {

struct Step {
  int32_t kind;
  ht_kernel *kernel;
  size_t in, out; // index of the operand's first address in Steps::addresses
  void *workspace;
  ht_event *event;
};

struct Steps {
  std::vector<Step> list;
  std::vector<void *> addresses;

  // Copies the steps with their address lists. Throws Invalid, with the number of the step, if a step is wrong.
  Steps(const ht_step *steps, int32_t count);

  void launch(const Step &step, void *queue) const {
    step.kernel->impl->run({addresses.data() + step.in, addresses.data() + step.out, step.workspace, queue});
  }
  std::string name(size_t i) const; // "step 3 (conv2d)", for error texts

private:
  Step checked(const ht_step &step);
  void copy(const ht_kernel &kernel, const char *side, void *const *list, const Specs &specs);
};

} // namespace hetero
