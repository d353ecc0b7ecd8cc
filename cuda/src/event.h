// event.h: a point in a stream that the host and other streams wait for, or a moment that the host says has come.
//
// The state is a word in page-locked memory that host and GPU share: a stream writes it (cuStreamWriteValue32) and waits for it
// (cuStreamWaitValue32) without a kernel, in a captured graph as well, and the host can complete an event that a stream waits for.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace hetero {

// Whether a GPU still answers, asked now and then by who waits for it: a GPU that has fallen off the bus writes no word.
class Pulse {
public:
  explicit Pulse(int device) : device_(device) {}
  // Asks, unless it has been asked a moment ago. Throws std::runtime_error with the GPU's error.
  void feel();

private:
  const int device_;
  std::atomic<int64_t> asked_ns_{0};
};

class Event {
public:
  enum State { complete, pending, failed };

  explicit Event(Pulse &pulse); // which outlives it
  ~Event();                     // waits for the GPU: in a quiet moment
  Event(const Event &) = delete;

  State state() const;
  // Takes completion back, if there is one. A host that waited for what was complete is not held up by it.
  void announce();
  void settle(State s); // complete or failed, from the host
  // Waits until it is not pending, and says what it is then; pending if timeout_ns is over first. Negative: without end. Throws where the GPU has failed
  // meanwhile.
  State wait(int64_t timeout_ns) const;

  void enqueue_record(cudaStream_t stream);
  void enqueue_wait(cudaStream_t stream);

private:
  static constexpr uint32_t kPending = 0, kComplete = 1;

  Pulse &pulse_;
  uint32_t *word_; // kPending or kComplete: also what streams that wait for a failed event are let go by
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> taken_back_{0}; // how many completions were
};

} // namespace hetero
