// activity.cc
#include "activity.h"

#include <cuda_runtime.h>

#include <atomic>
#include <string>

#include "status.h"

#if HETERO_CUPTI
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "check.h"
#include "clock.h"
#include "cupti_library.h"
#include "records.h"

namespace hetero {
namespace {

constexpr size_t kBufferBytes = 4 << 20;
constexpr size_t kMostRecords = 4 << 20;

struct StepOf {
  const ht_program *program = nullptr;
  int32_t step = -1;
};

thread_local StepOf adding; // the step for which nodes are being added

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER};
constexpr CUpti_CallbackId kNodes[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};

class Notebook {
public:
  void begin();
  Activities end();
  void forget();
  uint64_t session() const { return session_; }

  // Called by CUPTI, on any thread.
  void node(CUpti_CallbackId what, const CUpti_GraphData &data);
  void buffer(CUcontext context, uint32_t stream, uint8_t *records, size_t bytes);

private:
  void listen();
  void leave();
  void keep(const Noted &noted);
  const char *kept_name(const Noted &noted);

  std::atomic<uint64_t> session_{0};
  std::mutex switching_; // serialises begin and end
  bool open_ = false, registered_ = false;
  CUpti_SubscriberHandle subscriber_ = nullptr;

  // Guards the fields below. A thread that holds this mutex must not call CUPTI. CUPTI's thread may hold a lock of
  // CUPTI while it waits for this mutex. Both threads would then wait forever.
  std::mutex mutex_;
  std::unordered_map<uint64_t, StepOf> nodes_;         // nodes of graphs, by CUPTI's number of the node
  std::unordered_map<std::string, std::string> names_; // readable names, by CUPTI's name
  bool taking_ = false; // whether records are added to list_; afterwards the caller of end reads list_
  std::vector<ht_activity> list_;
  int64_t offset_ = 0; // CUPTI's clock minus the host's clock, ns
  int64_t lost_ = 0;
};

Notebook &notebook() {
  static auto *const one = new Notebook; // never destroyed: CUPTI's thread outlives static objects
  return *one;
}

void CUPTIAPI on_request(uint8_t **buffer, size_t *bytes, size_t *most_records) {
  *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, kBufferBytes)); // nullptr: CUPTI drops and counts records
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0; // no limit: as many records as fit
}

void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *records, size_t, size_t bytes) {
  notebook().buffer(context, stream, records, bytes);
  std::free(records);
}

void CUPTIAPI on_resource(void *, CUpti_CallbackDomain domain, CUpti_CallbackId what, const void *data) {
  if (domain != CUPTI_CB_DOMAIN_RESOURCE || !data) return;
  const auto &resource = *static_cast<const CUpti_ResourceData *>(data);
  if (resource.resourceDescriptor)
    notebook().node(what, *static_cast<const CUpti_GraphData *>(resource.resourceDescriptor));
}

void Notebook::node(CUpti_CallbackId what, const CUpti_GraphData &data) {
  try {
    const Cupti &cupti = Cupti::get();
    const bool cloned = what != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED;
    uint64_t id = 0, from = 0;
    if (cupti.cuptiGetGraphNodeId(data.node, &id) != CUPTI_SUCCESS) return;
    if (cloned && cupti.cuptiGetGraphNodeId(data.originalNode, &from) != CUPTI_SUCCESS) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!cloned) {
      if (adding.program) nodes_[id] = adding;
    } else if (const auto it = nodes_.find(from); it != nodes_.end()) {
      nodes_[id] = StepOf(it->second);
    }
  } catch (...) { // out of memory: the activities of this node are recorded without their step
  }
}

void Notebook::buffer(CUcontext context, uint32_t stream, uint8_t *records, size_t bytes) {
  int64_t lost = 0;
  const std::vector<Noted> all = read_buffer(records, bytes, lost);
  lost += dropped_records(context, stream);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!taking_) return;
  lost_ += lost;
  for (const Noted &noted : all) {
    try {
      keep(noted);
    } catch (...) {
      lost_++;
    }
  }
}

const char *Notebook::kept_name(const Noted &noted) {
  if (!*noted.name) return "";
  auto it = names_.find(noted.name);
  if (it == names_.end()) it = names_.emplace(noted.name, readable_name(noted)).first;
  return it->second.c_str();
}

void Notebook::keep(const Noted &noted) {
  if (noted.begin != 0 && noted.end == 0) return; // the activity is still running
  if (noted.begin == 0 || noted.end < noted.begin || list_.size() >= kMostRecords) {
    lost_++;
    return;
  }
  ht_activity a{};
  a.kind = noted.kind;
  a.step = -1;
  a.begin_ns = static_cast<int64_t>(noted.begin) + offset_;
  a.end_ns = static_cast<int64_t>(noted.end) + offset_;
  a.bytes = static_cast<int64_t>(noted.bytes);
  a.lane = noted.lane;
  a.name = kept_name(noted);
  if (const auto it = nodes_.find(noted.node); noted.node != 0 && it != nodes_.end()) {
    a.program = it->second.program;
    a.step = it->second.step;
  }
  list_.push_back(a);
}

void Notebook::begin() {
  Cupti::get(); // throws the reason if CUPTI is unavailable
  const std::lock_guard<std::mutex> lock(switching_);
  if (open_) throw Invalid("activity: already recording");
  {
    const std::lock_guard<std::mutex> held(mutex_);
    nodes_.clear();
    names_.clear();
    list_.clear();
    lost_ = 0;
    taking_ = true;
  }
  listen();
  open_ = true;
  session_++;
}

// Returns CUPTI's clock minus the host's clock, in ns. Of several attempts, the fastest one counts, because the system
// may preempt the thread between the two readings.
int64_t clock_offset() {
  int64_t offset = 0, least = INT64_MAX;
  for (int i = 0; i < 8; i++) {
    uint64_t theirs = 0;
    const int64_t before = now_ns();
    check(Cupti::get().cuptiGetTimestamp(&theirs), "read CUPTI's clock");
    const int64_t took = now_ns() - before;
    if (took >= least) continue;
    least = took;
    offset = before + took / 2 - static_cast<int64_t>(theirs);
  }
  return offset;
}

// Enables all kinds of records. If that fails, disables all of them.
void Notebook::listen() {
  const Cupti &cupti = Cupti::get();
  check(cupti.cuptiSubscribe(&subscriber_, reinterpret_cast<CUpti_CallbackFunc>(on_resource), nullptr),
        "subscribe to CUPTI");
  try {
    for (const CUpti_CallbackId id : kNodes)
      check(cupti.cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id),
            "enable callbacks for graph nodes");
    const int64_t offset = clock_offset();
    {
      const std::lock_guard<std::mutex> held(mutex_);
      offset_ = offset;
    }
    if (!registered_)
      check(cupti.cuptiActivityRegisterCallbacks(on_request, on_complete), "register the record buffers");
    registered_ = true;
    for (const CUpti_ActivityKind kind : kKinds) check(cupti.cuptiActivityEnable(kind), "enable the activity records");
  } catch (...) {
    leave();
    throw;
  }
}

void Notebook::leave() {
  const Cupti &cupti = Cupti::get();
  for (const CUpti_ActivityKind kind : kKinds) cupti.cuptiActivityDisable(kind);
  cupti.cuptiUnsubscribe(subscriber_);
}

Activities Notebook::end() {
  const Cupti &cupti = Cupti::get();
  const std::lock_guard<std::mutex> lock(switching_);
  if (!open_) throw Invalid("activity: not recording");
  const cudaError_t waited = cudaDeviceSynchronize(); // CUPTI does not wait for the GPU
  const CUptiResult flushed = cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  leave();
  open_ = false;
  session_++;
  const int64_t dropped = dropped_records(nullptr, 0); // records dropped since the last buffer
  const std::lock_guard<std::mutex> held(mutex_);
  lost_ += dropped;
  taking_ = false;
  check(waited, "wait for the recorded work");
  check(flushed, "flush the activity records");
  return {&list_, lost_};
}

void Notebook::forget() {
  const std::lock_guard<std::mutex> lock(switching_);
  if (open_) throw Invalid("activity: still recording, want the recording stopped before its records are freed");
  const std::lock_guard<std::mutex> held(mutex_);
  list_ = std::vector<ht_activity>(); // clear() would keep the memory
  nodes_.clear();
  names_.clear();
}

} // namespace

void start_activity() { notebook().begin(); }
Activities stop_activity() { return notebook().end(); }
void free_activities() { notebook().forget(); }
uint64_t activity_session() { return notebook().session(); }

NodesOfStep::NodesOfStep(const ht_program *program, int32_t step) { adding = {program, step}; }
NodesOfStep::~NodesOfStep() { adding = {}; }

} // namespace hetero

#else

namespace hetero {

void start_activity() {
  throw Unavailable(
      "cuda: this build cannot record GPU activities, because its CUDA toolkit has no cupti.h: build with a toolkit "
      "that has it (docs/gpu.md)");
}
Activities stop_activity() { throw Invalid("activity: not recording"); }
void free_activities() {}
uint64_t activity_session() { return 0; }
NodesOfStep::NodesOfStep(const ht_program *, int32_t) {}
NodesOfStep::~NodesOfStep() = default;

} // namespace hetero

#endif
