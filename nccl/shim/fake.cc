// fake.cc: an NCCL for tests. GPU memory is host memory. Ranks are threads or processes, which share memory (board.h).
//
// It behaves like a non-blocking NCCL communicator:
//
//   - Joining and the first operation stay in progress for a while.
//   - An operation runs asynchronously on its stream once all ranks have reached it. It reduces values in the order of
//     ranks.
//   - It reads NCCL_HOSTID once per process.
//   - Two ranks that seem to use one GPU of one host get an error, unless the version and NCCL_MULTI_RANK_GPU_ENABLE
//     permit it. Unlike NCCL, the fake returns this error in the first operation, because it learns the GPU from the
//     stream.
//
// HETERO_FAKE_NCCL requests faults, separated by commas:
//
//	version=N             the result of ncclGetVersion
//	absent:R              rank R never arrives when the communicator is joined
//	refuse:R              joining fails on rank R
//	hang:R@N              rank R's N-th operation, from 1, never progresses
//	lost:R@N              in its N-th operation rank R detects a lost rank
//	reject:R@N            the call of rank R's N-th operation returns an error
//	wrong:R@N             one bit of rank R's result of its N-th operation is wrong
//	stuck:R               NCCL does not return when rank R aborts
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "board.h"

namespace {

using fake::Call;
using fake::Kind;

constexpr int kJoining = 3; // number of ncclInProgress results of ncclCommGetAsyncError after all ranks have joined

// A rank's endpoint. It exists as long as the communicator or work on its stream needs it.
struct End {
  End(const std::string &name, int rank, int size) : board(name, rank, size), rank(rank) {}
  fake::Board board;
  const int rank;
  std::atomic<bool> stopped{false};
  std::atomic<ncclResult_t> state{ncclInProgress};
};

struct Operation {
  Call call;
  const char *from;
  char *to;
  cudaStream_t stream;
};

} // namespace

struct ncclComm {
  std::shared_ptr<End> end;
  std::string name;
  int joining = kJoining, connecting = 1;
  uint64_t operations = 0;
};

namespace {

std::mutex mutex; // protects the communicators, but not the state of their streams
thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Operation>> noted; // calls within a group
thread_local std::string last_error;

// Returns whether HETERO_FAKE_NCCL requests a fault for a rank. If number is not 0, the fault must be for this
// operation.
bool asked(const char *fault, int rank, uint64_t number) {
  const char *all = std::getenv("HETERO_FAKE_NCCL");
  std::string want = std::string(fault) + ":" + std::to_string(rank);
  if (number > 0) want += "@" + std::to_string(number);
  return all && ("," + std::string(all) + ",").find("," + want + ",") != std::string::npos;
}

int version() {
  const char *all = std::getenv("HETERO_FAKE_NCCL"), *at = all ? std::strstr(all, "version=") : nullptr;
  return at ? std::atoi(at + 8) : NCCL_VERSION_CODE;
}

// Returns a hash that distinguishes this host from others.
uint64_t host() {
  static const uint64_t hash = [] {
    const char *name = std::getenv("NCCL_HOSTID");
    return std::hash<std::string>()(name ? name : "this host");
  }();
  return hash;
}

bool two_ranks_a_gpu() {
  const char *text = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version() >= 23003 && text && std::strcmp(text, "1") == 0;
}

// Performs an operation. The stream calls this function at the operation's turn.
void perform(End &end, const Operation &o, bool hangs, bool wrong) {
  // An operation that hangs, or whose calls differ between ranks, stays on the GPU until it is aborted.
  const auto stopped = [&] { return end.stopped.load(); };
  const auto stay = [&] {
    while (!stopped()) usleep(200);
  };
  if (hangs) return stay();
  switch (end.board.perform(o.call, o.from, o.to, o.stream->gpu, two_ranks_a_gpu(), stopped)) {
  case fake::Board::End::done:
    if (wrong) o.to[0] = static_cast<char>(o.to[0] ^ 1);
    return;
  case fake::Board::End::unlike: end.state = ncclInternalError; return stay();
  case fake::Board::End::one_gpu: end.state = ncclInvalidUsage; return stay();
  case fake::Board::End::stopped: return;
  }
}

ncclResult_t begin(ncclComm_t c, const Operation &o) {
  const std::shared_ptr<End> end = c->end;
  const uint64_t number = ++c->operations;
  if (asked("reject", end->rank, number)) return last_error = "it was asked to fail", ncclInvalidUsage;
  if (asked("lost", end->rank, number)) end->state = ncclRemoteError;
  const bool hangs = asked("hang", end->rank, number), wrong = asked("wrong", end->rank, number);
  o.stream->enqueue(1000, [=] { perform(*end, o, hangs, wrong); });
  return ncclSuccess;
}

ncclResult_t enqueue(ncclComm_t c, Kind kind, const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op,
                     int root, cudaStream_t s) {
  const Operation o{{kind, n, t, op, root}, static_cast<const char *>(from), static_cast<char *>(to), s};
  const std::lock_guard<std::mutex> lock(mutex);
  if (depth > 0) return noted.emplace_back(c, o), ncclSuccess;
  const ncclResult_t r = begin(c, o);
  if (r != ncclSuccess) return r;
  if (c->connecting > 0 && c->end->state == ncclSuccess) c->end->state = ncclInProgress;
  return c->end->state;
}

// Removes a rank. Its unfinished operations never end on the other ranks.
void leave(ncclComm_t c) {
  const std::lock_guard<std::mutex> lock(mutex);
  c->end->stopped = true;
  fake::Board::forget(c->name);
  delete c;
}

} // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT ncclResult_t ncclGetVersion(int *v) { return *v = version(), ncclSuccess; }
EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  try {
    *id = {};
    std::snprintf(id->internal, sizeof id->internal, "%s", fake::Board::make().c_str());
    return ncclSuccess;
  } catch (const std::exception &e) {
    return last_error = e.what(), ncclSystemError;
  }
}
EXPORT const char *ncclGetErrorString(ncclResult_t r) {
  switch (r) {
  case ncclInvalidUsage: return "invalid usage";
  case ncclRemoteError: return "remote process exited or there was a network error";
  case ncclInternalError: return "internal error";
  default: return "an error";
  }
}
EXPORT const char *ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                           ncclConfig_t *config) {
  if (config->size != sizeof *config || config->magic != 0xcafebeef || config->blocking != 0)
    return ncclInvalidArgument;
  try {
    *comm = new ncclComm{std::make_shared<End>(id.internal, rank, size), id.internal};
  } catch (const std::exception &e) {
    return last_error = e.what(), ncclSystemError;
  }
  if (asked("refuse", rank, 0)) (*comm)->end->state = ncclSystemError;
  if (!asked("absent", rank, 0)) (*comm)->end->board.join(host());
  return ncclInProgress;
}
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (c->end->state == ncclInProgress && c->end->board.complete()) {
    if (c->joining > 0)
      c->joining--;
    else if (c->operations > 0)
      c->connecting = 0;
    ncclResult_t before = ncclInProgress; // if the stream has reported an error in the meantime, the error is kept
    if (c->joining == 0 && (c->operations == 0 || c->connecting == 0))
      c->end->state.compare_exchange_strong(before, ncclSuccess);
  }
  *state = c->end->state;
  if (*state == ncclInvalidUsage) last_error = "Duplicate GPU detected";
  return ncclSuccess;
}
EXPORT ncclResult_t ncclCommFinalize(ncclComm_t c) {
  return c->end->state == ncclSuccess ? ncclSuccess : ncclInvalidUsage;
}
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t c) { return leave(c), ncclSuccess; }
EXPORT ncclResult_t ncclCommAbort(ncclComm_t c) {
  const bool stuck = asked("stuck", c->end->rank, 0);
  leave(c);
  while (stuck) pause();
  return ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                                  cudaStream_t s) {
  return enqueue(c, Kind::all_reduce, from, to, n, t, op, 0, s);
}
EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                                  cudaStream_t s) {
  return enqueue(c, Kind::broadcast, from, to, n, t, ncclSum, root, s);
}
EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, int root,
                               ncclComm_t c, cudaStream_t s) {
  return enqueue(c, Kind::reduce, from, to, n, t, op, root, s);
}
EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t c,
                                  cudaStream_t s) {
  return enqueue(c, Kind::all_gather, from, to, n, t, ncclSum, 0, s);
}
EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op,
                                      ncclComm_t c, cudaStream_t s) {
  return enqueue(c, Kind::reduce_scatter, from, to, n, t, op, 0, s);
}
EXPORT ncclResult_t ncclGroupStart() { return depth++, ncclSuccess; }
EXPORT ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  auto calls = std::move(noted);
  noted.clear();
  ncclResult_t answer = ncclSuccess;
  for (auto &[c, o] : calls) {
    const Call &k = o.call;
    const ncclResult_t r = enqueue(c, k.kind, o.from, o.to, k.count, k.type, k.op, k.root, o.stream);
    if (r != ncclSuccess) answer = r;
  }
  return answer;
}
}
