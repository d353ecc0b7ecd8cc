// program.cc: checks a list of steps once, then runs it as often as wanted.
#include "program.h"

#include <set>

#include "gpu.h"
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
      const std::string operand = op_name(step.kernel->op) + ": " + side + " " + std::to_string(i);
      if (!p) throw Invalid(operand + ": no address");
      const int64_t size = specs[i].dtype == HT_OPAQUE ? 64 : dtype_size(specs[i].dtype);
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
  check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "a program's event");
}

Program::~Program() {
  if (graph_) cudaGraphExecDestroy(graph_);
  cudaEventDestroy(done_);
}

// Who waits for an event of this run must not take the previous run's completion for it, nor must the previous run still be about
// to write it.
void Program::announce() {
  check(cudaEventSynchronize(done_), "the last run of a program");
  for (const Step &s : steps_)
    if (s.kind == HT_STEP_RECORD) s.event->impl.announce();
}

void Program::enqueue(const Step &step, cudaStream_t stream) {
  switch (step.kind) {
  case HT_STEP_LAUNCH:
    step.kernel->impl->run({addresses_.data() + step.in, addresses_.data() + step.out, step.workspace, stream});
    break;
  case HT_STEP_RECORD: step.event->impl.enqueue_record(stream); break;
  case HT_STEP_WAIT: step.event->impl.enqueue_wait(stream); break;
  }
}

template <class Body> void Program::guarded_run(Body body) {
  announce();
  try {
    body();
  } catch (...) {
    for (const Step &s : steps_)
      if (s.kind == HT_STEP_RECORD && s.event->impl.state() == Event::pending) s.event->impl.settle(Event::failed);
    throw;
  }
}

void Program::enqueue_all(cudaStream_t stream) {
  for (size_t i = 0; i < steps_.size(); i++) {
    try {
      enqueue(steps_[i], stream);
    } catch (const std::exception &e) {
      const std::string name = steps_[i].kernel ? op_name(steps_[i].kernel->op) : "event";
      throw std::runtime_error("step " + std::to_string(i) + " (" + name + "): " + e.what());
    }
  }
}

// Makes the graph; false where the driver cannot capture, and then the steps are enqueued one by one.
bool Program::capture(cudaStream_t stream) {
  captured_ = true;
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return cudaGetLastError(), false;
  cudaGraph_t graph = nullptr;
  try {
    enqueue_all(stream);
  } catch (const std::exception &) { // enqueued one by one, it says so again if it is no matter of capturing
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    return false;
  }
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) return cudaGetLastError(), false;
  const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  if (made == cudaSuccess) return true;
  graph_ = nullptr;
  cudaGetLastError();
  return false;
}

void Program::run(cudaStream_t stream) {
  guarded_run([&] {
    if (!captured_ && steps_.size() > 1) capture(stream);
    if (graph_)
      check(cudaGraphLaunch(graph_, stream), "graph");
    else
      enqueue_all(stream);
    check(cudaEventRecord(done_, stream), "the end of a program");
  });
}

void Program::run_timed(cudaStream_t stream, int64_t *elapsed_ns) {
  guarded_run([&] {
    struct Marks {
      std::vector<cudaEvent_t> list;
      ~Marks() {
        for (cudaEvent_t e : list) cudaEventDestroy(e);
      }
    } marks;
    auto mark = [&] {
      cudaEvent_t e = nullptr;
      check(cudaEventCreate(&e), "an event for timing");
      marks.list.push_back(e);
      check(cudaEventRecord(e, stream), "timing");
    };
    mark();
    for (const Step &s : steps_) {
      enqueue(s, stream);
      mark();
    }
    check(cudaEventRecord(done_, stream), "the end of a program");
    check(cudaStreamSynchronize(stream), "a timed program");
    for (size_t i = 0; i < steps_.size(); i++) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, marks.list[i], marks.list[i + 1]), "timing");
      elapsed_ns[i] += static_cast<int64_t>(1e6 * static_cast<double>(ms));
    }
  });
}

} // namespace hetero
