// quiet.h: moments in which no stream of a device stands still for the host, and what is kept for them.
//
// A stream that waits for a word (event.h) stands until a thread of the host has launched what it waits for: an exchange between ranks. Some calls
// of CUDA may wait for the whole GPU and keep all other threads from launching meanwhile: the first launch of a kernel, which loads its code (the
// programming guide's "Lazy Loading"), frees of memory, and what destroys objects that own memory or code. While a stream stands they could wait
// for ever. So they are made in quiet moments: code is loaded when a program is made, which waits for such a moment and holds up what would
// stand; what is freed beside training is kept until the next one.
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

// Any thread may call anything at any time, with the device chosen.
class Quiet {
public:
  // notes outlive it.
  explicit Quiet(Notes &notes) : notes_(notes) {}
  // Frees what is kept. What a stream that never went on holds up is left to the end of the process.
  ~Quiet();
  Quiet(const Quiet &) = delete;

  // Runs enqueue, behind which the stream may stand.
  template <class Body> void stand(cudaStream_t stream, Body enqueue) {
    const Standing s(*this, stream);
    enqueue();
  }
  // Runs body in a quiet moment: waits until all streams have gone on. The caller holds nothing that they, or other ranks that they wait for, need to do so.
  template <class Body> void during(Body body) {
    const Moment m(*this);
    body();
  }
  // Frees in a quiet moment: now if this is one, else in the next. free throws nothing.
  void later(std::function<void()> free);
  // Frees what is kept if this is a quiet moment. Costs nothing where nothing is kept.
  void sweep();

  // The same for the device that the calling thread works with: choose is called before. Without one there is nothing to wait for.
  static void choose(Quiet *of_device);
  template <class Body> static void moment(Body body) {
    if (Quiet *q = chosen())
      q->during(body);
    else
      body();
  }
  // Runs body if this is a quiet moment, else answers false.
  template <class Body> static bool now(Body body) {
    Quiet *q = chosen();
    if (q && !q->begun()) return false;
    const std::unique_ptr<Quiet, Ender> ends(q);
    body();
    return true;
  }
  // Destroys object in a quiet moment.
  template <class T> static void discard(T object) {
    auto kept = std::make_shared<T>(std::move(object));
    if (Quiet *q = chosen()) q->later([kept = std::move(kept)]() mutable { kept.reset(); });
  }
  // Takes what CUDA answers to a free: what fails is noted.
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
  bool begun(); // begin where it need not wait
  void end();
  bool stands(); // the lock is held
  void free_kept(std::unique_lock<std::mutex> &lock);

  Notes &notes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int entering_ = 0;                  // threads that enqueue what may stand
  int keepers_ = 0;                   // threads that need the moment to be quiet
  std::vector<cudaEvent_t> standing_; // each behind work that may stand
  std::vector<cudaEvent_t> spare_;
  std::vector<std::function<void()>> kept_;
};

} // namespace hetero
