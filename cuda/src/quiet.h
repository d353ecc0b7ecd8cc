// quiet.h: waits for quiescence, and keeps work until then. Quiescence holds while no stream of a device is blocked on
// a host event.
//
// A stream that waits for a word (event.h) is blocked until a host thread has launched the work that writes the word.
// This work is an exchange between ranks.
//
// Some calls of CUDA may wait for the whole GPU, and meanwhile prevent all other threads from launching work:
//
//   - the first launch of a kernel, which loads its code (the programming guide's "Lazy Loading")
//   - frees of memory
//   - the destruction of objects that own memory or code
//
// If a stream is blocked, such a call could wait forever. The device therefore makes these calls only at quiescence.
// Code is loaded when a program is created. The creation waits for quiescence, and delays work that would block a
// stream. Objects that are freed during training are kept until the next quiescence.
#pragma once

#include <cuda_runtime.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "notes.h"

namespace hetero {

// Safe for concurrent use. The calling thread must have selected the device.
class Quiet {
public:
  // notes must outlive the object.
  explicit Quiet(Notes &notes) : notes_(notes) {}
  // Frees the kept objects. Memory that a permanently blocked stream uses is not freed before the process ends.
  ~Quiet();
  Quiet(const Quiet &) = delete;

  // Runs enqueue. The work that enqueue submits may block the stream.
  template <class Body> void stand(cudaStream_t stream, Body enqueue) {
    const Standing s(*this, stream);
    enqueue();
  }
  // Runs body at quiescence: first waits until no stream is blocked. The caller must hold no resource that a blocked
  // stream needs to continue. This includes resources that other ranks need to write the word for which the stream
  // waits.
  template <class Body> void during(Body body) {
    const Moment m(*this);
    body();
  }
  // Calls free now if no stream is blocked, otherwise at the next quiescence. free must not throw.
  void later(std::function<void()> free);
  // Frees the kept objects if no stream is blocked. Returns immediately if there are none.
  void sweep();

  // The static functions use the device that choose has selected for the calling thread. Without a selected device,
  // they do not wait.
  static void choose(Quiet *of_device);
  template <class Body> static void moment(Body body) {
    if (Quiet *q = chosen())
      q->during(body);
    else
      body();
  }
  // Runs body if no stream is blocked, and returns whether it ran.
  template <class Body> static bool now(Body body) {
    Quiet *q = chosen();
    if (q && !q->begun()) return false;
    const std::unique_ptr<Quiet, Ender> ends(q);
    body();
    return true;
  }
  // Destroys object at quiescence.
  template <class T> static void discard(T object) {
    auto kept = std::make_shared<T>(std::move(object));
    if (Quiet *q = chosen()) q->later([kept = std::move(kept)]() mutable { kept.reset(); });
  }
  // Notes the error of a free, if any.
  static void freed(cudaError_t answer, const char *what);

private:
  struct Standing {
    Standing(Quiet &q, cudaStream_t s) : quiet(q), stream(s) { q.enter(); }
    ~Standing() { quiet.left(stream); }
    Quiet &quiet;
    cudaStream_t stream;
  };
  struct Moment {
    explicit Moment(Quiet &q) : quiet(q) { q.begin(); }
    ~Moment() { quiet.end(); }
    Quiet &quiet;
  };

  struct Ender {
    void operator()(Quiet *q) const { q->end(); }
  };

  static Quiet *chosen();
  void enter();
  void left(cudaStream_t stream);
  void begin();
  bool begun(); // calls begin if begin would not wait; returns whether it has called begin
  void end();
  bool stands(); // the caller must hold the lock
  void free_kept(std::unique_lock<std::mutex> &lock);

  Notes &notes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int entering_ = 0;                  // number of threads that are enqueuing work that may block
  int keepers_ = 0;                   // number of threads that need quiescence
  std::vector<cudaEvent_t> standing_; // events, each recorded after work that may block
  std::vector<cudaEvent_t> spare_;
  std::vector<std::function<void()>> kept_;
};

} // namespace hetero
