// event.h: an event, for which the host and streams wait. A stream records it, or the host completes it.
//
// The state is a word in page-locked memory that host and GPU access. A stream writes the word (cuStreamWriteValue32)
// and waits for it (cuStreamWaitValue32) without a kernel, even in a captured graph. The host can complete an event for
// which a stream waits.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace hetero {

// Checks whether a GPU still works. Waiting threads call it from time to time, because a GPU that has fallen off the
// bus does not write the words of events.
class Pulse {
public:
  explicit Pulse(int device) : device_(device) {}
  // Checks the GPU, unless the last check was a moment ago. Throws std::runtime_error with the GPU's error.
  void feel();

private:
  const int device_;
  std::atomic<int64_t> asked_ns_{0};
};

class Event {
public:
  enum State { complete, pending, failed };

  explicit Event(Pulse &pulse); // pulse must outlive the event
  ~Event();                     // waits for the GPU: destroy at quiescence
  Event(const Event &) = delete;

  State state() const;
  // Makes a complete event pending again. A host thread that waits for the earlier completion still returns complete.
  void announce();
  void settle(State s); // makes the event complete or failed, from the host
  // Waits until the event is not pending, and returns its state. Returns pending after timeout_ns; a negative
  // timeout_ns means no limit. Throws if the GPU fails in the meantime.
  State wait(int64_t timeout_ns) const;

  void enqueue_record(cudaStream_t stream);
  void enqueue_wait(cudaStream_t stream);

private:
  static constexpr uint32_t kPending = 0, kComplete = 1;

  Pulse &pulse_;
  uint32_t *word_; // kPending or kComplete; a failed event has kComplete, so that streams that wait for it continue
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> taken_back_{0}; // number of completions that were taken back
};

} // namespace hetero
