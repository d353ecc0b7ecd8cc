// program.h: a program is a list of steps, and runs as one CUDA graph. The creation of a program creates and uploads
// the graph. This loads all code, including the code of libraries, so a run does not load code.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "event.h"
#include "quiet.h"
#include "steps.h"

namespace hetero {

class Program {
public:
  // Waits for quiescence. self is the handle of the C ABI. quiet and notes must outlive the program. A program must be
  // destroyed at quiescence.
  Program(const ht_program *self, const ht_step *steps, int32_t count, Quiet &quiet, Notes &notes);
  ~Program();
  Program(const Program &) = delete;

  void run(cudaStream_t stream);
  // Runs as run does, then waits, and adds the time of step i to elapsed_ns[i].
  void run_timed(cudaStream_t stream, int64_t *elapsed_ns);

private:
  void announce();
  // Announces the events, then runs body. If body throws, the events become failed, so that no thread waits forever.
  template <class Body> void guarded_run(Body body);
  void enqueue(const Step &step, cudaStream_t stream);
  void enqueue_all(cudaStream_t stream);
  void load(bool first);
  void make_graph(cudaStream_t scratch);
  // Runs enqueue, which submits the steps to the stream. If the program waits for events, quiet_ counts the stream as
  // possibly blocked.
  template <class Body> void on_stream(cudaStream_t stream, Body enqueue);

  const ht_program *self_;
  Steps steps_;
  Quiet &quiet_;
  Notes &notes_;
  cudaGraphExec_t graph_ = nullptr;      // nullptr: steps are launched one by one
  uint64_t session_ = 0;                 // activity session in which the graph was created
  bool records_ = false, waits_ = false; // whether the program records events; whether it waits for events
  cudaEvent_t done_ = nullptr;           // end of the last run, if the program records events
};

} // namespace hetero

// The objects of the C ABI.
struct ht_event {
  ht_device *device;
  hetero::Event impl;
};
struct ht_program {
  ht_device *device;
  hetero::Program impl;
  ht_program(ht_device *d, const ht_step *steps, int32_t count, hetero::Quiet &quiet, hetero::Notes &notes)
      : device(d), impl(this, steps, count, quiet, notes) {}
};
