// steps.cc
#include "steps.h"

#include <set>

#include "requests.h"
#include "specs.h"

namespace hetero {

void Steps::copy(const ht_kernel &kernel, const char *side, void *const *given, const Specs &specs) {
  for (size_t i = 0; i < specs.size(); i++) {
    void *p = given ? given[i] : nullptr;
    const std::string operand = op_name(kernel.op) + ": " + side + " " + std::to_string(i);
    if (!p) throw Invalid(operand + ": got a null address");
    const int64_t size = specs[i].dtype == HT_OPAQUE ? 64 : dtype_size(specs[i].dtype);
    if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(size))
      throw Invalid(operand + ": the address is not a multiple of " + std::to_string(size));
    addresses.push_back(p);
  }
}

Step Steps::checked(const ht_step &step) {
  if (step.kind == HT_STEP_RECORD || step.kind == HT_STEP_WAIT) {
    if (!step.event) throw Invalid("got a null event");
    return {step.kind, nullptr, 0, 0, nullptr, step.event};
  }
  if (step.kind != HT_STEP_LAUNCH)
    throw Invalid("got kind " + std::to_string(step.kind) + ", want a launch, a record or a wait");
  if (!step.kernel) throw Invalid("got a null kernel");
  const Kernel &k = *step.kernel->impl;
  const Step s{step.kind, step.kernel, addresses.size(), addresses.size() + k.in.size(), step.workspace, nullptr};
  copy(*step.kernel, "input", step.in, k.in);
  copy(*step.kernel, "output", step.out, k.out);
  if (k.workspace > 0 && (!step.workspace || reinterpret_cast<uintptr_t>(step.workspace) % 64))
    throw Invalid(op_name(step.kernel->op) + ": workspace: got a null or misaligned address, want " +
                  std::to_string(k.workspace) + " bytes at a multiple of 64");
  return s;
}

Steps::Steps(const ht_step *steps, int32_t count) {
  if (count < 0 || (count > 0 && !steps))
    throw Invalid("got " + std::to_string(count) + " steps" + (steps ? "" : " and a null list") +
                  ", want at least 0 steps, and a list that is not null");
  std::set<ht_event *> recorded, waited;
  for (int32_t i = 0; i < count; i++) {
    try {
      list.push_back(checked(steps[i]));
      ht_event *event = list.back().event;
      if (steps[i].kind == HT_STEP_RECORD && waited.count(event) && !recorded.count(event))
        throw Invalid("records an event for which an earlier step waits: the program would wait forever");
      if (steps[i].kind == HT_STEP_RECORD) recorded.insert(event);
      if (steps[i].kind == HT_STEP_WAIT) waited.insert(event);
    } catch (const Invalid &e) {
      throw Invalid("step " + std::to_string(i) + ": " + e.what());
    }
  }
}

std::string Steps::name(size_t i) const {
  return "step " + std::to_string(i) + " (" + (list[i].kernel ? op_name(list[i].kernel->op) : "event") + ")";
}

} // namespace hetero
