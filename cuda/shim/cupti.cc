// cupti.cc: a fake CUPTI for tests. It watches the shim's streams and delivers records in small buffers, as CUPTI does
// from its own thread. HETERO_SHIM_CUPTI changes its behaviour, words separated by commas:
//
//	privileges   only administrators may record activities
//	taken        another subscriber exists
//	newer        newer than the driver: nothing works
//	no-nodes     it does not report nodes of graphs
//	silent       it records nothing
//	damaged      the first record of the second buffer cannot be read
//	backwards    every third kernel ends before it begins
//	unfinished   every third kernel is still running
//	no-room      every second buffer is refused, and its records are dropped
//	locks        its functions wait until its thread has delivered a buffer, like a library whose functions and thread use one lock
#include <cupti.h>
#include <dlfcn.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kRecordBytes = 64, kRecordsOfBuffer = 16;
constexpr int64_t kAhead = 1'000'000'000'000; // ns by which CUPTI's clock is ahead of the shim's

bool setting(const char *word) {
  const char *all = std::getenv("HETERO_SHIM_CUPTI");
  std::stringstream words(all ? all : "");
  for (std::string w; std::getline(words, w, ',');)
    if (w == word) return true;
  return false;
}

struct Record {
  alignas(8) unsigned char bytes[kRecordBytes] = {};
};

struct Fake final : shimWatcher {
  std::mutex mutex;
  std::set<CUpti_ActivityKind> kinds;
  std::deque<Record> records;
  std::vector<std::string> functions; // names of functions, by callback id
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_CallbackFunc callback = nullptr;
  void (*watch)(shimWatcher *) = nullptr;
  size_t buffers = 0, dropped = 0, kernels = 0;
  bool subscribed = false;

  template <class T> void put(CUpti_ActivityKind kind, T record) {
    static_assert(sizeof record <= kRecordBytes, "a record has room");
    record.kind = kind;
    Record r;
    std::memcpy(r.bytes, &record, sizeof record);
    const std::lock_guard<std::mutex> lock(mutex);
    if (kinds.count(kind) && !setting("silent")) records.push_back(r);
  }
  template <class T> static T work(unsigned stream, uint64_t node, int64_t begin, int64_t end) {
    T t{};
    t.streamId = stream;
    t.graphNodeId = node;
    t.start = uint64_t(begin + kAhead);
    t.end = uint64_t(end + kAhead);
    return t;
  }

  void did(shimKind kind, uint64_t bytes, uint64_t node, unsigned stream, int64_t begin, int64_t end) override {
    if (kind == shimKernel) {
      auto k = work<CUpti_ActivityKernel9>(stream, node, begin, end);
      k.name =
          "_ZN6hetero12_GLOBAL__N_15applyIfLi4EEEvPKT_PS2_l"; // void hetero::(anonymous namespace)::apply<float, 4>(…)
      const bool third = ++kernels % 3 == 0;
      if (third && setting("backwards")) k.end = k.start - 1;
      if (third && setting("unfinished")) k.end = 0;
      return put(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, k);
    }
    if (kind == shimCopy) {
      auto c = work<CUpti_ActivityMemcpy5>(stream, node, begin, end);
      c.bytes = bytes;
      return put(CUPTI_ACTIVITY_KIND_MEMCPY, c);
    }
    auto f = work<CUpti_ActivityMemset4>(stream, node, begin, end);
    f.bytes = bytes;
    put(CUPTI_ACTIVITY_KIND_MEMSET, f);
  }
  void called(const char *function, int64_t begin, int64_t end) override {
    CUpti_ActivityAPI a{};
    {
      const std::lock_guard<std::mutex> lock(mutex);
      for (; a.cbid < functions.size() && functions[a.cbid] != function; a.cbid++) {
      }
      if (a.cbid == functions.size()) functions.push_back(function);
    }
    a.start = uint64_t(begin + kAhead);
    a.end = uint64_t(end + kAhead);
    a.threadId = 77;
    put(CUPTI_ACTIVITY_KIND_RUNTIME, a);
  }
  void tell(CUpti_CallbackId what, uint64_t node, uint64_t from) {
    if (!callback || setting("no-nodes")) return;
    CUpti_GraphData graph{&node, &from};
    const CUpti_ResourceData resource{nullptr, &graph};
    callback(nullptr, CUPTI_CB_DOMAIN_RESOURCE, what, &resource);
  }
  void added(uint64_t node) override { tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, node, 0); }
  void cloned(uint64_t node, uint64_t from) override { tell(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, node, from); }

  void flush() {
    std::unique_lock<std::mutex> lock(mutex);
    while (!records.empty()) {
      const size_t n = records.size() < kRecordsOfBuffer ? records.size() : kRecordsOfBuffer;
      const std::vector<Record> some(records.begin(), records.begin() + std::ptrdiff_t(n));
      records.erase(records.begin(), records.begin() + std::ptrdiff_t(n));
      buffers++;
      if (buffers % 2 == 0 && setting("no-room")) {
        dropped += n;
        continue;
      }
      const bool damaged = buffers == 2 && setting("damaged");
      lock.unlock();
      uint8_t *to = nullptr;
      size_t bytes = 0, most = 0;
      request(&to, &bytes, &most);
      std::memcpy(to, some.data(), n * kRecordBytes);
      if (damaged) std::memset(to, 0xff, kRecordBytes);
      complete(nullptr, 0, to, bytes, n * kRecordBytes);
      lock.lock();
    }
  }
};

Fake fake;

// Delivers an empty buffer on another thread, and waits until it is delivered. A caller that holds a lock which the
// buffer callbacks need would wait forever.
void meanwhile(const char *function) {
  static thread_local bool within = false;
  if (within || !fake.complete || !setting("locks")) return;
  std::packaged_task<void()> hand_out([] {
    within = true;
    uint8_t *to = nullptr;
    size_t bytes = 0, most = 0;
    fake.request(&to, &bytes, &most);
    fake.complete(nullptr, 0, to, bytes, 0);
  });
  std::future<void> done = hand_out.get_future();
  std::thread(std::move(hand_out)).detach();
  if (done.wait_for(std::chrono::seconds(60)) == std::future_status::ready) return;
  std::fprintf(stderr, "cupti: %s is called with a lock held that the callback of buffers takes\n", function);
  std::abort();
}

} // namespace

extern "C" {

CUptiResult cuptiGetResultString(CUptiResult r, const char **text) {
  *text = r == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES              ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
          : r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : r == CUPTI_ERROR_NOT_INITIALIZED                    ? "CUPTI_ERROR_NOT_INITIALIZED"
                                                                : nullptr;
  return *text ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiGetTimestamp(uint64_t *ns) {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return *ns = uint64_t(int64_t{1000000000} * t.tv_sec + t.tv_nsec + kAhead), CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain, uint32_t cbid, const char **name) {
  meanwhile("cuptiGetCallbackName");
  const std::lock_guard<std::mutex> lock(fake.mutex);
  if (cbid >= fake.functions.size()) return CUPTI_ERROR_INVALID_PARAMETER;
  return *name = fake.functions[cbid].c_str(), CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *s, CUpti_CallbackFunc f, void *) {
  if (setting("newer")) return CUPTI_ERROR_NOT_INITIALIZED;
  if (setting("taken") || fake.subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  Dl_info info{};
  dladdr(reinterpret_cast<void *>(f), &info); // finds the shim, which contains f
  void *shim = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  fake.watch = shim ? reinterpret_cast<void (*)(shimWatcher *)>(dlsym(shim, "hetero_shim_watch")) : nullptr;
  if (!fake.watch) return CUPTI_ERROR_INVALID_PARAMETER;
  *s = nullptr;
  fake.subscribed = true;
  fake.callback = f;
  fake.buffers = fake.dropped = fake.kernels = 0;
  fake.watch(&fake);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  if (!fake.subscribed) return CUPTI_ERROR_INVALID_PARAMETER;
  fake.watch(nullptr);
  fake.subscribed = false;
  fake.callback = nullptr;
  const std::lock_guard<std::mutex> lock(fake.mutex);
  fake.records.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId) {
  return fake.subscribed ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
  meanwhile("cuptiGetGraphNodeId");
  return *id = *node, CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r, CUpti_BuffersCallbackCompleteFunc c) {
  fake.request = r;
  fake.complete = c;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (setting("privileges")) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  const std::lock_guard<std::mutex> lock(fake.mutex);
  return fake.kinds.insert(kind), CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard<std::mutex> lock(fake.mutex);
  return fake.kinds.erase(kind), CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  std::thread([] { fake.flush(); }).join();
  return CUPTI_SUCCESS;
}
// Sets *record to the record after it, or to the first record if *record is nullptr.
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
  meanwhile("cuptiActivityGetNextRecord");
  uint8_t *next = *record ? reinterpret_cast<uint8_t *>(*record) + kRecordBytes : buffer;
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto *r = reinterpret_cast<CUpti_Activity *>(next);
  int32_t kind = 0;
  std::memcpy(&kind, r, sizeof kind);
  if (kind < 0 || kind > 64) return CUPTI_ERROR_INVALID_KIND;
  return *record = r, CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *dropped) {
  meanwhile("cuptiActivityGetNumDroppedRecords");
  const std::lock_guard<std::mutex> lock(fake.mutex);
  *dropped = fake.dropped; // number of records dropped since the last query
  fake.dropped = 0;
  return CUPTI_SUCCESS;
}
}
