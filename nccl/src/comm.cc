// comm.cc: NCCL's calls never block here (blocking = 0). The program starts each call, and then polls it, so that a
// rank that waits for another can always be stopped. Within one call of the API, one thread makes all calls of NCCL for
// an operation, including groups.
#include "comm.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "check.h"
#include "clock.h"

namespace hetero {

namespace {

// A waiting thread first polls continuously, since most operations take microseconds, and then sleeps between polls.
constexpr int64_t kSpin = 50'000, kShortNap = 10'000, kLong = 20'000'000, kLongNap = 200'000; // ns
// If a wait has not polled for this long, the process or the machine was stopped. Such a pause does not count towards
// the time limit.
constexpr int64_t kSlept = 1'000'000'000;    // ns
constexpr int64_t kAskEvery = 1'000'000;     // ns between two checks whether a running operation has failed
constexpr int64_t kFinalize = 2'000'000'000; // ns; time limit of finalize
// Returns the time limit, in ns, for two events: an aborted operation leaves the GPU, and NCCL returns from the call
// that ends the communicator. If the GPU is lost, neither may ever happen.
int64_t give_up() {
#ifdef HETERO_CUDA_SHIM
  if (const char *ms = std::getenv("HETERO_SHIM_GIVE_UP_MS")) return int64_t{1'000'000} * std::atoi(ms);
#endif
  return 10'000'000'000;
}

void nap(int64_t ns) {
  const timespec t{0, ns};
  nanosleep(&t, nullptr);
}

// Reduces the timer slack of this thread: by default Linux adds 50 us to every sleep.
void wake_promptly() {
  thread_local bool set = false;
  if (!set) prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  set = true;
}

struct Type {
  ncclDataType_t type;
  size_t bytes;
};

Type type_of(int dtype) {
  switch (dtype) { // values of tensor.DType
  case 1: return {ncclFloat32, 4};
  case 2: return {ncclFloat64, 8};
  case 3: return {ncclBfloat16, 2};
  case 4: return {ncclFloat16, 2};
  case 5: return {ncclInt64, 8};
  case 6: return {ncclInt32, 4};
  case 7: return {ncclUint32, 4};
  case 8: return {ncclUint8, 1};
  }
  throw Ended{HETERO_NCCL_FAILED, "element type " + std::to_string(dtype) + " is unknown to NCCL"};
}

ncclRedOp_t op_of(int reduce) { return reduce == 0 ? ncclSum : reduce == 1 ? ncclMax : ncclMin; }

} // namespace

Comm::Comm(const hetero_nccl_options &options) : options_(options), nccl_(nccl()) {
  check(cudaSetDevice(options_.device), "select the device");
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "query the priorities of streams");
  // Use the highest priority, so that blocks of an all-reduce start as soon as any block of the computation ends.
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "create a stream");
  check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "create an event");
}

Comm::~Comm() {
  if (comm_ || !let_go() || !came_back()) return; // operations that never end may still use the stream and events
  cudaSetDevice(options_.device);
  if (done_) cudaEventDestroy(done_);
  if (stream_) cudaStreamDestroy(stream_);
}

// Calls body with a time limit. Any exception ends the communicator.
template <class Body> void Comm::guarded_call(int64_t timeout_ns, Body body) {
  wake_promptly();
  deadline_ns_ = timeout_ns > 0 ? now_ns() + timeout_ns : 0;
  check(cudaSetDevice(options_.device), "select the device");
  try {
    body();
  } catch (...) {
    abort();
    throw;
  }
}

void Comm::connect(int64_t timeout_ns) {
  guarded_call(timeout_ns, [&] {
    ncclUniqueId id;
    static_assert(sizeof id == HETERO_NCCL_ID_BYTES, "an id is 128 bytes");
    std::copy(options_.id, options_.id + sizeof id, reinterpret_cast<uint8_t *>(&id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options_.min_ctas > 0) config.minCTAs = options_.min_ctas;
    if (options_.max_ctas > 0) config.maxCTAs = options_.max_ctas;
    settle(nccl_.CommInitRankConfig(&comm_, options_.size, id, options_.rank, &config), "ncclCommInitRankConfig");
  });
}

void Comm::run(const hetero_nccl_call &call, void *buffer, const int64_t *counts) {
  guarded_call(call.timeout_ns, [&] {
    if (!comm_) throw Ended{HETERO_NCCL_FAILED, "the communicator has ended"};
    if (stopped_) throw Ended{HETERO_NCCL_STOPPED, "stopped"};
    launch(call, static_cast<char *>(buffer), counts);
    check(cudaEventRecord(done_, stream_), "record the end of an operation");
    int64_t asked = now_ns();
    wait([&] {
      const cudaError_t ended = cudaEventQuery(done_);
      if (ended == cudaSuccess) return true;
      if (ended != cudaErrorNotReady) check(ended, "query an operation");
      if (const int64_t now = now_ns(); now - asked > kAskEvery) {
        asked = now;
        noted(state(), "an operation in flight");
      }
      return false;
    });
  });
}

void Comm::launch(const hetero_nccl_call &call, char *buffer, const int64_t *counts) {
  const Type t = type_of(call.dtype);
  const auto n = static_cast<size_t>(call.elements);
  const ncclRedOp_t op = op_of(call.reduce);
  switch (call.kind) {
  case HETERO_ALL_REDUCE:
    return settle(nccl_.AllReduce(buffer, buffer, n, t.type, op, comm_, stream_), "ncclAllReduce");
  case HETERO_BROADCAST:
    return settle(nccl_.Broadcast(buffer, buffer, n * t.bytes, ncclUint8, call.root, comm_, stream_), "ncclBroadcast");
  case HETERO_ALL_GATHER: return gather(buffer, counts, t.bytes);
  case HETERO_REDUCE_SCATTER: return scatter(buffer, counts, t.bytes, t.type, op);
  }
  throw Ended{HETERO_NCCL_FAILED, "an operation of kind " + std::to_string(call.kind) + " is unknown"};
}

// If all parts have one size, NCCL's own all-gather is used. Otherwise, each rank broadcasts its part, and all
// broadcasts form one group.
void Comm::gather(char *buffer, const int64_t *counts, size_t element) {
  const int64_t *end = counts + options_.size;
  if (std::all_of(counts, end, [&](int64_t c) { return c == counts[0]; })) {
    const size_t part = static_cast<size_t>(counts[0]) * element;
    const char *own = buffer + static_cast<size_t>(options_.rank) * part;
    return settle(nccl_.AllGather(own, buffer, part, ncclUint8, comm_, stream_), "ncclAllGather");
  }
  grouped([&] {
    char *part = buffer;
    for (int root = 0; root < options_.size; root++) {
      const size_t bytes = static_cast<size_t>(counts[root]) * element;
      if (bytes > 0) noted(nccl_.Broadcast(part, part, bytes, ncclUint8, root, comm_, stream_), "ncclBroadcast");
      part += bytes;
    }
  });
}

void Comm::scatter(char *buffer, const int64_t *counts, size_t element, ncclDataType_t type, ncclRedOp_t op) {
  const int64_t *end = counts + options_.size;
  if (std::all_of(counts, end, [&](int64_t c) { return c == counts[0]; })) {
    const auto n = static_cast<size_t>(counts[0]);
    char *own = buffer + static_cast<size_t>(options_.rank) * n * element;
    return settle(nccl_.ReduceScatter(buffer, own, n, type, op, comm_, stream_), "ncclReduceScatter");
  }
  grouped([&] {
    char *part = buffer;
    for (int root = 0; root < options_.size; root++) {
      const auto n = static_cast<size_t>(counts[root]);
      if (n > 0) noted(nccl_.Reduce(part, part, n, type, op, root, comm_, stream_), "ncclReduce");
      part += n * element;
    }
  });
}

// Within a group, NCCL only records calls; it starts them at the end of the group. A group must be ended even after a
// failure.
void Comm::grouped(const std::function<void()> &calls) {
  settle(nccl_.GroupStart(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    nccl_.GroupEnd();
    throw;
  }
  settle(nccl_.GroupEnd(), "ncclGroupEnd");
}

// Checks the result of a call that may still be in progress: a call within a group that has not started yet, or a
// running operation.
void Comm::noted(ncclResult_t result, const char *what) {
  if (result != ncclSuccess && result != ncclInProgress) fail(result, what);
}

// Waits until the work of a call has been submitted to the stream.
void Comm::settle(ncclResult_t result, const char *what) {
  if (result == ncclInProgress)
    wait([&] {
      result = state();
      return result != ncclInProgress;
    });
  if (result != ncclSuccess) fail(result, what);
}

// Polls until ready returns true, the communicator is stopped, or the time limit expires.
template <class Ready> void Comm::wait(Ready ready) {
  const int64_t begin = now_ns();
  int64_t looked = begin;
  while (!ready()) {
    if (stopped_) throw Ended{HETERO_NCCL_STOPPED, "stopped"};
    const int64_t now = now_ns();
    if (now - looked > kSlept)
      deadline_ns_ += deadline_ns_ > 0 ? now - looked : 0; // the process or the machine was stopped
    looked = now;
    if (deadline_ns_ > 0 && now > deadline_ns_) throw Ended{HETERO_NCCL_TIMEOUT, "the time limit expired"};
    if (const int64_t passed = now - begin; passed > kSpin) nap(passed < kLong ? kShortNap : kLongNap);
  }
}

// Returns NCCL's state of the communicator.
ncclResult_t Comm::state() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.CommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) fail(asked, "ncclCommGetAsyncError");
  return state;
}

void Comm::fail(ncclResult_t result, const std::string &what) {
  const char *more = nccl_.GetLastError(comm_);
  const bool others = result == ncclRemoteError || result == ncclSystemError;
  throw Ended{others ? HETERO_NCCL_PEER : HETERO_NCCL_FAILED,
              what + ": " + nccl_.GetErrorString(result) + (more && *more ? std::string(": ") + more : "")};
}

// Calls the function that ends the communicator on a separate thread, so that a hang does not block other threads.
void Comm::begin_end(const char *what, ncclResult_t (*call)(ncclComm_t)) {
  ends_ = what;
  over_ = std::make_shared<std::atomic<bool>>(false);
  std::thread([over = over_, call, comm = comm_, device = options_.device] {
    cudaSetDevice(device);
    call(comm);
    *over = true;
  }).detach();
  comm_ = nullptr;
}

template <class Ready> bool Comm::in_time(Ready ready) {
  for (const int64_t begin = now_ns(); !ready(); nap(kLongNap))
    if (now_ns() - begin > give_up()) return false;
  return true;
}

bool Comm::let_go() const { return cudaStreamQuery(stream_) != cudaErrorNotReady; }
bool Comm::came_back() const { return !over_ || *over_; }

// Aborts the running operation, and waits until the operation has left the GPU. It does not wait for NCCL to return:
// before that, NCCL frees memory, which may wait until the whole GPU is idle. But a stream stays blocked until this
// operation is reported as ended, so waiting for NCCL here could deadlock.
void Comm::abort() {
  if (!comm_) return;
  begin_end("ncclCommAbort", nccl_.CommAbort);
  in_time([&] { return let_go(); });
}

void Comm::end() {
  cudaSetDevice(options_.device);
  abort();
  const std::string limit = std::to_string(give_up() / 1'000'000) + " ms";
  if (!in_time([&] { return came_back(); }))
    throw Ended{HETERO_NCCL_FAILED, ends_ + " has not returned within " + limit +
                                        ": NCCL keeps its threads and its GPU memory until the process ends"};
  if (!in_time([&] { return let_go(); }))
    throw Ended{HETERO_NCCL_FAILED, "an NCCL operation is still running on the GPU " + limit + " after " + ends_};
}

void Comm::finalize() {
  if (!comm_ || stopped_) return;
  deadline_ns_ = now_ns() + kFinalize;
  check(cudaSetDevice(options_.device), "select the device");
  settle(nccl_.CommFinalize(comm_), "ncclCommFinalize");
  begin_end("ncclCommDestroy", nccl_.CommDestroy);
}

} // namespace hetero
