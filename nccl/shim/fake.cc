// fake.cc: an NCCL for tests: ranks are threads of one process, GPU memory is the host's. It answers as NCCL does that may not block:
// joining and the first operation are in progress for a while, an operation runs behind the call, when all ranks have begun it, in the order
// of ranks. What goes wrong is asked for in HETERO_FAKE_NCCL, faults separated by commas:
//
//	version=N             what ncclGetVersion says
//	absent:R              rank R never arrives when a communicator is joined
//	refuse:R              joining fails on rank R
//	hang:R@N              rank R's N-th operation, from 1, never moves
//	lost:R@N              in its N-th operation rank R finds that another one is gone
//	reject:R@N            the call of rank R's N-th operation is an error
#include <nccl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kJoining = 3; // times that ncclCommGetAsyncError says that it is in progress when all are there

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter };

struct Operation {
  Kind kind;
  const char *from;
  char *to;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  cudaStream_t stream;
  std::shared_ptr<std::atomic<bool>> over; // lets the stream go on
};

struct Meeting {
  std::vector<Operation> of_rank;
  int arrived = 0;
};

struct Group {
  explicit Group(int size) : size(size) {}
  const int size;
  int joined = 0;
  std::vector<ncclComm_t> members = std::vector<ncclComm_t>(static_cast<size_t>(size));
  std::map<uint64_t, Meeting> meetings; // by the number of the operation
};

} // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank;
  bool counted = true;
  int joining = kJoining, connecting = 1;
  uint64_t operations = 0;
  ncclResult_t state = ncclInProgress;
  std::vector<Operation> waiting; // that have not run: their streams are busy
};

namespace {

std::mutex mutex;
std::map<std::string, std::shared_ptr<Group>> groups; // by unique id
thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Operation>> noted; // within a group
thread_local std::string last_error;

std::shared_ptr<std::atomic<bool>> fresh() { return std::make_shared<std::atomic<bool>>(false); }

void nap() {
  const timespec t{0, 20'000};
  nanosleep(&t, nullptr);
}

// The fault of that name for a rank and the number of an operation, 0 without one.
bool asked(const char *fault, int rank, uint64_t number) {
  const char *all = std::getenv("HETERO_FAKE_NCCL");
  std::string want = std::string(fault) + ":" + std::to_string(rank);
  if (number > 0) want += "@" + std::to_string(number);
  return all && ("," + std::string(all) + ",").find("," + want + ",") != std::string::npos;
}

size_t bytes_of(ncclDataType_t t) {
  switch (t) {
  case ncclInt64:
  case ncclFloat64: return 8;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclUint8: return 1;
  default: return 4;
  }
}

float widen(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float f;
  std::memcpy(&f, &wide, sizeof f);
  return f;
}

uint16_t narrow(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof f);
  if (f != f) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T> T combine(T a, T b, ncclRedOp_t op) {
  if (op == ncclSum) return static_cast<T>(a + b);
  return op == ncclMax ? (b > a ? b : a) : (b < a ? b : a);
}

// Reduces elements first … first+count of all ranks' buffers, in the order of ranks.
template <class T> void reduce_as(const Meeting &m, size_t first, size_t count, char *out) {
  for (size_t i = 0; i < count; i++) {
    T acc{};
    for (size_t r = 0; r < m.of_rank.size(); r++) {
      T v;
      std::memcpy(&v, m.of_rank[r].from + (first + i) * sizeof(T), sizeof v);
      acc = r == 0 ? v : combine(acc, v, m.of_rank[r].op);
    }
    std::memcpy(out + i * sizeof(T), &acc, sizeof acc);
  }
}

void reduce_bf16(const Meeting &m, size_t first, size_t count, char *out) {
  for (size_t i = 0; i < count; i++) {
    float acc = 0;
    for (size_t r = 0; r < m.of_rank.size(); r++) {
      uint16_t bits;
      std::memcpy(&bits, m.of_rank[r].from + (first + i) * 2, sizeof bits);
      acc = r == 0 ? widen(bits) : combine(acc, widen(bits), m.of_rank[r].op);
    }
    const uint16_t bits = narrow(acc);
    std::memcpy(out + i * 2, &bits, sizeof bits);
  }
}

std::vector<char> reduced(const Meeting &m, size_t first, size_t count) {
  std::vector<char> out(count * bytes_of(m.of_rank[0].type));
  switch (m.of_rank[0].type) {
  case ncclFloat32: reduce_as<float>(m, first, count, out.data()); break;
  case ncclFloat64: reduce_as<double>(m, first, count, out.data()); break;
  case ncclInt32: reduce_as<int32_t>(m, first, count, out.data()); break;
  case ncclInt64: reduce_as<int64_t>(m, first, count, out.data()); break;
  case ncclUint8: reduce_as<uint8_t>(m, first, count, out.data()); break;
  case ncclBfloat16: reduce_bf16(m, first, count, out.data()); break;
  default: break;
  }
  return out;
}

void put(char *to, const std::vector<char> &data) { std::memcpy(to, data.data(), data.size()); }

void perform(const Meeting &m) {
  const Operation &one = m.of_rank[0];
  const size_t element = bytes_of(one.type), ranks = m.of_rank.size();
  switch (one.kind) {
  case Kind::all_reduce: {
    const auto sum = reduced(m, 0, one.count);
    for (const Operation &o : m.of_rank) put(o.to, sum);
    break;
  }
  case Kind::reduce: {
    const auto sum = reduced(m, 0, one.count);
    put(m.of_rank[static_cast<size_t>(one.root)].to, sum);
    break;
  }
  case Kind::broadcast: {
    const char *from = m.of_rank[static_cast<size_t>(one.root)].from;
    const std::vector<char> data(from, from + one.count * element);
    for (const Operation &o : m.of_rank) put(o.to, data);
    break;
  }
  case Kind::all_gather: {
    std::vector<char> all;
    for (const Operation &o : m.of_rank) all.insert(all.end(), o.from, o.from + o.count * element);
    for (const Operation &o : m.of_rank) put(o.to, all);
    break;
  }
  case Kind::reduce_scatter:
    std::vector<std::vector<char>> parts;
    for (size_t r = 0; r < ranks; r++) parts.push_back(reduced(m, r * one.count, one.count));
    for (size_t r = 0; r < ranks; r++) put(m.of_rank[r].to, parts[r]);
    break;
  }
}

bool alike(const Operation &a, const Operation &b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op && a.root == b.root;
}

// A rank begins an operation. The last to come moves everybody's data; the lock is held.
ncclResult_t begin(ncclComm_t c, const Operation &o) {
  const uint64_t number = ++c->operations;
  if (asked("reject", c->rank, number)) return last_error = "it was asked to fail", ncclInvalidUsage;
  o.stream->enqueue(1000, [over = o.over] {
    while (!*over) nap();
  });
  c->waiting.push_back(o);
  if (asked("lost", c->rank, number)) c->state = ncclRemoteError;
  if (asked("hang", c->rank, number)) return ncclSuccess;
  Meeting &m = c->group->meetings[number];
  m.of_rank.resize(static_cast<size_t>(c->group->size));
  m.of_rank[static_cast<size_t>(c->rank)] = o;
  if (++m.arrived < c->group->size) return ncclSuccess;
  for (const Operation &other : m.of_rank)
    if (!alike(other, o)) { // what NCCL does then is undefined; here nobody goes on
      for (ncclComm_t member : c->group->members)
        if (member) member->state = ncclInternalError;
      return ncclSuccess;
    }
  for (ncclComm_t member : c->group->members)
    if (!member) return ncclSuccess; // it was aborted meanwhile
  perform(m);
  for (ncclComm_t member : c->group->members) {
    *member->waiting.front().over = true;
    member->waiting.erase(member->waiting.begin());
  }
  c->group->meetings.erase(number);
  return ncclSuccess;
}

ncclResult_t enqueue(ncclComm_t c, Operation o) {
  std::lock_guard<std::mutex> lock(mutex);
  if (depth > 0) return noted.emplace_back(c, o), ncclSuccess;
  const ncclResult_t r = begin(c, o);
  if (r != ncclSuccess) return r;
  if (c->connecting > 0 && c->state == ncclSuccess) c->state = ncclInProgress;
  return c->state;
}

// Takes a rank out; what it had begun never ends for the others.
void leave(ncclComm_t c) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const Operation &o : c->waiting) *o.over = true;
  if (c->counted) c->group->members[static_cast<size_t>(c->rank)] = nullptr;
  delete c;
}

} // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT ncclResult_t ncclGetVersion(int *version) {
  const char *all = std::getenv("HETERO_FAKE_NCCL"), *at = all ? std::strstr(all, "version=") : nullptr;
  return *version = at ? std::atoi(at + 8) : NCCL_VERSION_CODE, ncclSuccess;
}
EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int made = 0;
  std::lock_guard<std::mutex> lock(mutex);
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "fake %d %d", static_cast<int>(getpid()), ++made);
  return ncclSuccess;
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
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Group> &g = groups[id.internal];
  if (!g) g = std::make_shared<Group>(size);
  if (g->size != size || g->members[static_cast<size_t>(rank)]) return ncclInvalidUsage;
  *comm = new ncclComm{g, rank, true, kJoining, 1, 0, ncclInProgress, {}};
  if (asked("refuse", rank, 0)) (*comm)->state = ncclSystemError;
  if (asked("absent", rank, 0)) return (*comm)->counted = false, ncclInProgress;
  g->members[static_cast<size_t>(rank)] = *comm;
  g->joined++;
  return ncclInProgress;
}
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
  std::lock_guard<std::mutex> lock(mutex);
  if (c->state == ncclInProgress && c->group->joined == c->group->size) {
    if (c->joining > 0)
      c->joining--;
    else if (c->operations > 0)
      c->connecting = 0;
    if (c->joining == 0 && (c->operations == 0 || c->connecting == 0)) c->state = ncclSuccess;
  }
  return *state = c->state, ncclSuccess;
}
EXPORT ncclResult_t ncclCommFinalize(ncclComm_t c) { return c->state == ncclSuccess ? ncclSuccess : ncclInvalidUsage; }
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t c) { return leave(c), ncclSuccess; }
EXPORT ncclResult_t ncclCommAbort(ncclComm_t c) { return leave(c), ncclSuccess; }

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                                  cudaStream_t s) {
  return enqueue(c,
                 {Kind::all_reduce, static_cast<const char *>(from), static_cast<char *>(to), n, t, op, 0, s, fresh()});
}
EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                                  cudaStream_t s) {
  return enqueue(
      c, {Kind::broadcast, static_cast<const char *>(from), static_cast<char *>(to), n, t, ncclSum, root, s, fresh()});
}
EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op, int root,
                               ncclComm_t c, cudaStream_t s) {
  return enqueue(c,
                 {Kind::reduce, static_cast<const char *>(from), static_cast<char *>(to), n, t, op, root, s, fresh()});
}
EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t c,
                                  cudaStream_t s) {
  return enqueue(
      c, {Kind::all_gather, static_cast<const char *>(from), static_cast<char *>(to), n, t, ncclSum, 0, s, fresh()});
}
EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t t, ncclRedOp_t op,
                                      ncclComm_t c, cudaStream_t s) {
  return enqueue(
      c, {Kind::reduce_scatter, static_cast<const char *>(from), static_cast<char *>(to), n, t, op, 0, s, fresh()});
}
EXPORT ncclResult_t ncclGroupStart() { return depth++, ncclSuccess; }
EXPORT ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  auto calls = std::move(noted);
  noted.clear();
  ncclResult_t answer = ncclSuccess;
  for (auto &[c, o] : calls) {
    const ncclResult_t r = enqueue(c, o);
    if (r != ncclSuccess) answer = r;
  }
  return answer;
}
}
