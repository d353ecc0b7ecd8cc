// program.h: lists of launches, and running them: as one CUDA graph, captured when the program first runs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "event.h"
#include "steps.h"

namespace hetero {

class Program {
public:
  Program(const ht_step *steps, int32_t count);
  ~Program();
  Program(const Program &) = delete;

  void run(cudaStream_t stream);
  // As run, then waits; elapsed_ns[i] += time of step i.
  void run_timed(cudaStream_t stream, int64_t *elapsed_ns);

private:
  void announce();
  // Announces, then runs body; where that throws, the events it was to record have failed: nobody waits for ever.
  template <class Body> void guarded_run(Body body);
  void enqueue(const Step &step, cudaStream_t stream);
  void enqueue_all(cudaStream_t stream);
  bool capture(cudaStream_t stream);

  Steps steps_;
  cudaGraphExec_t graph_ = nullptr;
  bool captured_ = false;      // or it was tried
  cudaEvent_t done_ = nullptr; // of the last run
};

} // namespace hetero

// The objects of the C ABI.
struct ht_event {
  hetero::Event impl;
};
struct ht_program {
  hetero::Program impl;
  ht_program(const ht_step *steps, int32_t count) : impl(steps, count) {}
};
