// event.h: a point in a stream that the host and other streams wait for, or a moment that the host says has come.
//
// The state is a word in page-locked memory that host and GPU share: a stream writes it (cuStreamWriteValue32) and waits for it
// (cuStreamWaitValue32) without a kernel, in a captured graph as well, and the host can complete an event that a stream waits for.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace hetero {

class Event {
public:
  enum State { complete, pending, failed };

  Event();
  ~Event();
  Event(const Event &) = delete;

  State state() const;
  // Takes completion back, if there is one. A host that waited for what was complete is not held up by it.
  void announce();
  void settle(State s); // complete or failed, from the host
  // Waits until it is not pending, and says what it is then; pending if timeout_ns is over first. Negative: without end.
  State wait(int64_t timeout_ns) const;

  void enqueue_record(cudaStream_t stream);
  void enqueue_wait(cudaStream_t stream);

private:
  static constexpr uint32_t kPending = 0, kComplete = 1;

  uint32_t *word_; // kPending or kComplete: also what streams that wait for a failed event are let go by
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> taken_back_{0}; // how many completions were
};

} // namespace hetero
