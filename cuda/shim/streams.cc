// streams.cc: streams and events of the stand-in for the CUDA run-time library. A stream has a thread of its own, which does what was enqueued some
// time after the call has returned: what is read or written too early, or freed too soon, shows in tests.
#include <cuda.h>
#include <cuda_runtime.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

void nap() {
  const timespec t{0, 20'000};
  nanosleep(&t, nullptr);
}

} // namespace

namespace {

std::atomic<shimWatcher *> watcher{nullptr};

int64_t clock_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{1000000000} * t.tv_sec + t.tv_nsec;
}

// A call of the run-time library, for who watches.
struct Call {
  const char *function;
  int64_t begin = watcher ? clock_ns() : 0;
  ~Call() {
    if (shimWatcher *w = watcher; w && begin) w->called(function, begin, clock_ns());
  }
};

// What a piece of work is to who watches. Work that takes no time is none of the GPU's.
struct Seen {
  shimKind kind = shimKernel;
  uint64_t bytes = 0, node = 0;
};

uint64_t next_node() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

} // namespace

extern "C" __attribute__((visibility("default"))) void hetero_shim_watch(shimWatcher *w) { watcher = w; }

struct shimGraph {
  struct Work {
    int64_t takes;
    std::function<void()> does;
    Seen seen;
  };
  std::vector<Work> work;
};

namespace {

struct Stream final : shimStream {
  Stream() : shimStream(shim::chosen_gpu()) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work; // the first is under way
  bool closing = false;
  std::atomic<bool> closed{false}, stuck{false}; // stuck: waits for a word
  int64_t ns = 0;                                // the pretended time; its thread's
  shimGraph *captures = nullptr;                 // what is enqueued goes there
  const unsigned number = [] {
    static std::atomic<unsigned> last{6};
    return ++last;
  }();
  std::thread thread{[this] { serve(); }};

  void serve() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return closing || !work.empty(); });
      if (work.empty()) return;
      lock.unlock();
      work.front()();
      lock.lock();
      work.pop_front();
      changed.notify_all();
    }
  }
  void enqueue(int64_t takes, std::function<void()> f) override { add(takes, std::move(f), {}); }
  void add(int64_t takes, std::function<void()> f, Seen seen) {
    if (captures) {
      seen.node = next_node();
      if (shimWatcher *w = watcher) w->added(seen.node);
      return captures->work.push_back({takes, std::move(f), seen});
    }
    const std::lock_guard<std::mutex> lock(mutex);
    work.push_back([this, takes, f = std::move(f), seen] {
      const int64_t begin = clock_ns();
      f();
      ns += takes;
      if (shimWatcher *w = watcher; w && takes > 0) w->did(seen.kind, seen.bytes, seen.node, number, begin, clock_ns());
    });
    changed.notify_all();
  }
  void drain() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return work.empty(); });
  }
  bool idle() {
    const std::lock_guard<std::mutex> lock(mutex);
    return work.empty();
  }
  ~Stream() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      closing = true;
    }
    closed = true;
    changed.notify_all();
    thread.join();
  }
};

Stream *own(cudaStream_t s) { return static_cast<Stream *>(s); }

} // namespace

struct shimEvent {
  std::atomic<int64_t> ns{0};
  std::atomic<int> pending{0}; // recordings that are still to come
  void wait() const {
    while (pending && !shim::lost()) nap();
  }
};

namespace {

thread_local cudaStream_t capturing = nullptr; // on this thread, which may neither wait nor allocate meanwhile

std::mutex streams_mutex;
std::set<Stream *> streams;

// Freeing memory waits for the GPU, as far as that goes by itself.
void drain_all() {
  const std::lock_guard<std::mutex> lock(streams_mutex);
  for (Stream *s : streams) {
    for (;;) {
      {
        const std::lock_guard<std::mutex> held(s->mutex);
        if (s->work.empty() || s->stuck || shim::lost()) break;
      }
      nap();
    }
  }
}

} // namespace

namespace shim {

// HETERO_SHIM_LOST_AFTER is after how many launches and copies the GPU falls off the bus: what comes later is never done, and every call says so.
bool lost(bool one_more) {
  static const char *const text = std::getenv("HETERO_SHIM_LOST_AFTER");
  static const long limit = text ? std::atol(text) : -1;
  static std::atomic<long> enqueued{0};
  if (limit < 0) return false;
  return (one_more ? ++enqueued : enqueued.load()) > limit;
}

void enqueue(void *queue, int64_t ns, std::function<void()> work) {
  if (lost(true)) return;
  if (!queue) return work();
  static_cast<cudaStream_t>(queue)->enqueue(ns, std::move(work));
}

} // namespace shim

namespace {

// shim::enqueue of what is no kernel.
void enqueue_moved(cudaStream_t s, shimKind kind, size_t bytes, std::function<void()> work) {
  if (shim::lost(true)) return;
  if (!s) return work();
  own(s)->add(shim::kLaunch, std::move(work), {kind, bytes});
}

} // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
  const std::lock_guard<std::mutex> lock(streams_mutex);
  const auto made = new Stream;
  streams.insert(made);
  return *s = made, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return *least = 0, *greatest = -1, cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) { return own(s)->idle() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  {
    const std::lock_guard<std::mutex> lock(streams_mutex);
    streams.erase(own(s));
  }
  return delete own(s), cudaSuccess;
}
cudaError_t cudaGetLastError() { return shim::lost() ? cudaErrorUnknown : cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (!s || own(s)->captures) return cudaErrorInvalidValue;
  capturing = s;
  return own(s)->captures = new shimGraph, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
  *g = own(s)->captures;
  own(s)->captures = nullptr;
  capturing = nullptr;
  return *g ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long) {
  const Call call{"cudaGraphInstantiate_v12000"};
  *e = new shimGraph(*g);
  for (auto &w : (*e)->work) {
    const uint64_t from = w.seen.node;
    w.seen.node = next_node();
    if (shimWatcher *watching = watcher) watching->cloned(w.seen.node, from);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  const Call call{"cudaGraphLaunch_v10000"};
  for (const auto &w : e->work) own(s)->add(w.takes, w.does, w.seen);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return delete g, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { return delete e, cudaSuccess; }

cudaError_t cudaMalloc(void **p, size_t n) {
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  *p = std::aligned_alloc(256, (n + 255) / 256 * 256);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) { return cudaMalloc(p, n); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  const Call call{"cudaStreamSynchronize_v3020"};
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  if (s && !shim::lost()) own(s)->drain();
  return cudaGetLastError();
}
cudaError_t cudaDeviceSynchronize() { return drain_all(), cudaGetLastError(); }

cudaError_t cudaFree(void *p) { return drain_all(), std::free(p), cudaSuccess; }
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) {
  return shim::enqueue(s, 0, [=] { std::free(p); }), cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, cudaMemcpyKind) {
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  return std::memmove(dst, src, n), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind, cudaStream_t s) {
  const Call call{"cudaMemcpyAsync_v3020"};
  return enqueue_moved(s, shimCopy, n, [=] { std::memmove(dst, src, n); }), cudaGetLastError();
}
cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s) {
  const Call call{"cudaMemsetAsync_v3020"};
  return enqueue_moved(s, shimFill, n, [=] { std::memset(p, v, n); }), cudaGetLastError();
}

cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = new shimEvent, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return e->wait(), delete e, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (shim::lost()) return cudaErrorUnknown;
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  e->pending++;
  shim::enqueue(s, 0, [=] {
    if (s) e->ns = own(s)->ns;
    e->pending--;
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  return shim::lost() ? cudaErrorUnknown : e->pending ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const Call call{"cudaEventSynchronize_v3020"};
  return e->wait(), cudaGetLastError();
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  if (shim::lost()) return cudaErrorUnknown;
  if (from->pending || to->pending) return cudaErrorNotReady;
  return *ms = static_cast<float>(1e-6 * static_cast<double>(to->ns - from->ns)), cudaSuccess;
}

CUresult cuStreamWriteValue32(CUstream s, CUdeviceptr at, uint32_t value, unsigned) {
  shim::enqueue(s, 0, [=] { __atomic_store_n(reinterpret_cast<uint32_t *>(at), value, __ATOMIC_RELEASE); });
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue32(CUstream s, CUdeviceptr at, uint32_t value, unsigned) {
  shim::enqueue(s, 0, [=] {
    if (s) own(s)->stuck = true;
    while (__atomic_load_n(reinterpret_cast<uint32_t *>(at), __ATOMIC_ACQUIRE) != value && !(s && own(s)->closed))
      nap();
    if (s) own(s)->stuck = false;
  });
  return CUDA_SUCCESS;
}
