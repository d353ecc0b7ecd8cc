// program.h: lists of launches, and running them: from the second run on as one CUDA graph. The first loads the code of kernels and libraries, which must
// not happen in a capture.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "event.h"
#include "steps.h"

namespace hetero {

// What a device does otherwise than it should, for the log. Any thread.
class Notes {
public:
  void add(const std::string &text);
  std::string text() const;

private:
  mutable std::mutex mutex_;
  std::string text_;
};

class Program {
public:
  // self is what the C ABI calls it. notes outlive the program.
  Program(const ht_program *self, const ht_step *steps, int32_t count, Notes &notes);
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
  void capture(cudaStream_t stream);

  const ht_program *self_;
  Steps steps_;
  Notes &notes_;
  cudaGraphExec_t graph_ = nullptr;
  uint64_t session_ = 0;                // of activities, in which it was made
  bool ran_ = false, captured_ = false; // once; or it was tried
  bool records_ = false;                // events
  cudaEvent_t done_ = nullptr;          // of the last run, where it records events
};

} // namespace hetero

// The objects of the C ABI.
struct ht_event {
  int device; // index
  hetero::Event impl;
};
struct ht_program {
  int device;
  hetero::Program impl;
  ht_program(int index, const ht_step *steps, int32_t count, hetero::Notes &notes)
      : device(index), impl(this, steps, count, notes) {}
};
