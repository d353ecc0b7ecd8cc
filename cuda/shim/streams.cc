// streams.cc: streams and events of the fake CUDA run-time library. A stream has a thread that runs enqueued work some
// time after the call has returned. Tests therefore detect data that are read, written or freed too early.
#include <cuda.h>
#include <cuda_runtime.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
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

// Reports a call of the run-time library to the profiler.
struct Call {
  const char *function;
  int64_t begin = watcher ? clock_ns() : 0;
  ~Call() {
    if (shimWatcher *w = watcher; w && begin) w->called(function, begin, clock_ns());
  }
};

// A piece of work, as the profiler sees it. Work without duration is not work of the GPU, and is not reported.
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
  std::vector<std::string> code; // names of the kernels whose code the graph needs
};

namespace {

bool load_code(const std::string &code);

struct Stream final : shimStream {
  Stream() : shimStream(shim::chosen_gpu()) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work; // the first entry is running
  bool closing = false;
  std::atomic<bool> closed{false};
  std::atomic<const uint32_t *> word{nullptr}; // the word for which the stream waits
  std::atomic<uint32_t> value{0};              // the value for which the stream waits
  int64_t ns = 0;                              // modelled time; only the stream's thread accesses it
  shimGraph *captures = nullptr;               // the graph that receives enqueued work; nullptr: no capture
  const unsigned number = [] {
    static std::atomic<unsigned> last{6};
    return ++last;
  }();
  std::thread thread{[this] { serve(); }};

  void serve() {
    serving = this;
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
      shimWatcher *const w = watcher;
      if (!w || takes <= 0) return;
      // The profile contains times of the real and of the modelled clock, so the work must not end before its modelled
      // time.
      if (const int64_t left = begin + takes - clock_ns(); left > 0)
        std::this_thread::sleep_for(std::chrono::nanoseconds(left));
      w->did(seen.kind, seen.bytes, seen.node, number, begin, clock_ns());
    });
    changed.notify_all();
  }
  bool load(const std::string &code) override {
    if (captures) return captures->code.push_back(code), true;
    return load_code(code);
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

  static thread_local Stream *serving; // the stream whose thread this is
};
thread_local Stream *Stream::serving = nullptr;

Stream *own(cudaStream_t s) { return static_cast<Stream *>(s); }

} // namespace

struct shimEvent {
  std::atomic<int64_t> ns{0};
  std::atomic<int> pending{0}; // recordings that have not run yet
  void wait() const {
    while (pending && !shim::lost()) nap();
  }
};

namespace {

thread_local cudaStream_t capturing =
    nullptr; // stream that this thread captures; during the capture, the thread must neither wait nor allocate

std::mutex streams_mutex;
std::set<Stream *> streams;

// Lets the streams of the calling thread's device run until they finish or block. Returns whether one is blocked on a
// word. It checks twice, because another stream may have written the word in between.
bool stands() {
  const std::lock_guard<std::mutex> lock(streams_mutex);
  const int gpu = shim::chosen_gpu();
  bool standing = false;
  for (int calm = 0; calm < 2 && !shim::lost();) {
    bool moving = false;
    standing = false;
    for (Stream *s : streams) {
      const std::lock_guard<std::mutex> held(s->mutex);
      if (s->gpu != gpu || s->work.empty()) continue;
      const uint32_t *word = s->word;
      (word && __atomic_load_n(word, __ATOMIC_ACQUIRE) != s->value ? standing : moving) = true;
    }
    calm = moving ? 0 : calm + 1;
    if (moving) nap();
  }
  return standing && !shim::lost();
}

std::mutex loaded_mutex;
std::set<std::pair<int, std::string>> loaded; // kernels whose code is loaded, by device

bool load_code(const std::string &code) {
  const std::pair<int, std::string> here{shim::chosen_gpu(), code};
  const std::lock_guard<std::mutex> lock(loaded_mutex);
  if (loaded.count(here)) return true;
  return !stands() && loaded.insert(here).second;
}

// Memory of devices: bytes by address, and their sum by device.
std::mutex memory_mutex;
std::map<void *, std::pair<int, size_t>> given;
std::map<int, size_t> used;

} // namespace

namespace shim {

// HETERO_SHIM_LOST_AFTER is the number of launches and copies after which the GPU falls off the bus: later work never
// runs, and every call returns an error.
bool lost(bool one_more) {
  static const char *const text = std::getenv("HETERO_SHIM_LOST_AFTER");
  static const long limit = text ? std::atol(text) : -1;
  static std::atomic<long> enqueued{0};
  if (limit < 0) return false;
  return (one_more ? ++enqueued : enqueued.load()) > limit;
}

void enqueue(void *queue, int64_t ns, std::function<void()> work) {
  if (lost(!capturing)) return;
  if (!queue) return work();
  static_cast<cudaStream_t>(queue)->enqueue(ns, std::move(work));
}

bool load(void *queue, const std::string &code) {
  return queue ? static_cast<cudaStream_t>(queue)->load(code) : load_code(code);
}

} // namespace shim

namespace {

// Enqueues work other than kernels, like shim::enqueue.
void enqueue_moved(cudaStream_t s, shimKind kind, size_t bytes, std::function<void()> work) {
  if (shim::lost(!capturing)) return;
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
  for (const std::string &code : g->code)
    if (!load_code(code)) return shimErrorStands;
  *e = new shimGraph(*g);
  for (auto &w : (*e)->work) {
    const uint64_t from = w.seen.node;
    w.seen.node = next_node();
    if (shimWatcher *watching = watcher) watching->cloned(w.seen.node, from);
  }
  return cudaGetLastError();
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaGetLastError(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  const Call call{"cudaGraphLaunch_v10000"};
  for (const auto &w : e->work)
    if (!shim::lost(true)) own(s)->add(w.takes, w.does, w.seen);
  return cudaGetLastError();
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return delete g, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { return delete e, cudaSuccess; }

// CUDA allows these calls in a relaxed capture. The shim refuses them, because the device's kernels never allocate.
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) {
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  // Allocate exactly n bytes, so that the address sanitizer reports an access to the byte after them.
  return posix_memalign(p, 256, std::max<size_t>(n, 1)) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMalloc(void **p, size_t n) {
  const cudaDeviceProp facts = shim::facts();
  const int gpu = shim::chosen_gpu();
  const std::lock_guard<std::mutex> lock(memory_mutex);
  if (used[gpu] + n > facts.totalGlobalMem) return cudaErrorMemoryAllocation;
  const cudaError_t e = cudaHostAlloc(p, n, 0);
  if (e != cudaSuccess) return e;
  given[*p] = {gpu, n};
  used[gpu] += n;
  return cudaSuccess;
}
static cudaError_t may_free() {
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  if (shim::lost()) return cudaErrorUnknown; // streams still read the memory
  return stands() ? shimErrorStands : cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
  const cudaError_t e = may_free();
  if (e == cudaSuccess) std::free(p);
  return e;
}
cudaError_t cudaFree(void *p) {
  if (!p) return cudaSuccess;
  const cudaError_t e = may_free();
  if (e != cudaSuccess) return e;
  const std::lock_guard<std::mutex> lock(memory_mutex);
  used[given[p].first] -= given[p].second;
  given.erase(p);
  return std::free(p), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  const Call call{"cudaStreamSynchronize_v3020"};
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  if (s && !shim::lost()) own(s)->drain();
  return cudaGetLastError();
}
cudaError_t cudaDeviceSynchronize() { return stands() ? shimErrorStands : cudaGetLastError(); }
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
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  e->wait();
  if (e->pending) return cudaErrorUnknown; // the GPU is lost: enqueued work still writes to e
  return delete e, cudaSuccess;
}
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

// HETERO_SHIM_WAITING names a file, which the shim creates when a thread polls an event. A thread polls if it has made
// kAsksOfAWait queries of pending events since it last selected its device.
static constexpr int kAsksOfAWait = 100;
static thread_local int asked = 0;

namespace shim {
void begin_asking();
void begin_asking() { asked = 0; }
} // namespace shim

cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (shim::lost()) return cudaErrorUnknown;
  if (!e->pending) return cudaSuccess;
  if (const char *file = std::getenv("HETERO_SHIM_WAITING"); ++asked == kAsksOfAWait && file) std::ofstream{file};
  return cudaErrorNotReady;
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
    const auto word = reinterpret_cast<const uint32_t *>(at);
    Stream *const on = Stream::serving; // not s, because a captured graph may be launched on another stream
    const int64_t begin = clock_ns();
    if (on) {
      on->value = value;
      on->word = word;
    }
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value && !(on && on->closed)) nap();
    if (on) {
      on->word = nullptr;
      on->ns += clock_ns() - begin; // adds the real time of waiting
    }
  });
  return CUDA_SUCCESS;
}
