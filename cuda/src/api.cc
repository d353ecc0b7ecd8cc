// api.cc: the C ABI of the CUDA device. It checks arguments and converts exceptions to statuses.
//
// The device works in its primary context, which the run-time library, cuDNN and NCCL also use. Each OS thread has its
// own current device, so every call that may come from any thread first selects the device. Calls that free objects do
// the same, because the run-time library would otherwise create a context on GPU 0.
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "activity.h"
#include "calls.h"
#include "choices.h"
#include "dnn.h"
#include "fault.h"
#include "gpu.h"
#include "memops.h"
#include "peak.h"
#include "presence.h"
#include "product.h"
#include "program.h"

using namespace hetero;

struct ht_device {
  explicit ht_device(int i) : index(i) {}
  const int index;
  cudaDeviceProp facts{};
  ht_identity identity{};
  Account account;
  Notes notes;
  Quiet quiet{notes};
  Pulse pulse{index};
};
struct ht_stream {
  ht_device *device;
  cudaStream_t stream = nullptr;
  std::vector<cudaEvent_t> marks{}; // nullptr for a mark that was never set
};

namespace {

void use(ht_device *d) {
  Quiet::choose(&d->quiet);
  check(cudaSetDevice(d->index), "select the device");
}

// Like use, but ignores failures, for functions whose caller receives no error.
void try_use(ht_device *d) {
  Quiet::choose(&d->quiet);
  cudaSetDevice(d->index);
}

// Number of hardware queues that this program needs for its streams: passes, batches, copies to other ranks, NCCL and
// timing.
constexpr int kLeastQueues = 16;

// Notes a small number of hardware queues: a blocked stream blocks all later work in its queue, including the work of
// other streams.
void note_queues(Notes &notes) {
  const char *text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (!text || !*text || std::atoi(text) >= kLeastQueues) return;
  notes.add(std::string("CUDA_DEVICE_MAX_CONNECTIONS: got ") + text + ", want at least " +
            std::to_string(kLeastQueues) +
            " or unset: a stream that waits for other ranks may block the work for which it waits");
}

// Throws if a library is missing, so that opening the device fails instead of planning.
void want_libraries() {
  products_by(); // opens cuBLASLt
  Dnn::get();    // opens cuDNN, which uses the cuBLASLt that is already open
}

ht_status cuda_open(const ht_open_options *options, ht_device **device, ht_error *error) {
  return guarded(error, [&] {
    if (!options || !device) throw Invalid("open: got null options or a null pointer for the device");
    want_gpu(options->index);
    auto d = std::make_unique<ht_device>(options->index);
    d->facts = query_facts(d->index);
    want_architecture(d->index, d->facts);
    use(d.get());
    want_libraries();
    d->identity = identify(d->index);
    note_queues(d->notes);
    *device = d.release();
  });
}

void cuda_close(ht_device *d) {
  try_use(d);
  delete d;
  Quiet::choose(nullptr);
}

void tell(const cudaDeviceProp &facts, ht_info *info) {
  *info = {};
  std::snprintf(info->model, sizeof info->model, "%.127s", facts.name);
  std::snprintf(info->isa, sizeof info->isa, "sm_%d%d", facts.major, facts.minor);
  info->fast_bf16 = facts.major >= 8;
  info->memory_bytes = static_cast<int64_t>(facts.totalGlobalMem);
}

void cuda_info(const ht_device *d, ht_info *info) { tell(d->facts, info); }

// Must not create a context.
ht_status cuda_describe(int32_t index, ht_info *info, ht_error *error) {
  return guarded(error, [&] {
    want_gpu(index);
    if (prohibited(index))
      throw Unavailable("the GPU's compute mode is Prohibited; allow programs on it: nvidia-smi -i " +
                        std::to_string(index) + " -c DEFAULT");
    const cudaDeviceProp facts = driver_facts(index);
    want_architecture(index, facts);
    want_libraries();
    tell(facts, info);
  });
}

void cuda_notes(const ht_device *d, char *text, size_t text_bytes) {
  const std::string own = d->notes.text(), choices = choice_notes();
  copy_text(own + (own.empty() || choices.empty() ? "" : "; ") + choices, text, text_bytes);
}

void cuda_layout_name(const ht_device *, uint32_t layout, char *name, size_t name_bytes) {
  copy_text(layout_name(layout), name, name_bytes);
}

// Runs call, which allocates memory. If memory is short, make_room frees the objects whose release waits for quiescence
// (quiet.h), and call runs again.
template <class Call, class Room> void want_memory(const char *what, Call call, Room make_room) {
  cudaError_t answer = call();
  if (answer == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    make_room();
    answer = call();
  }
  check(answer, what);
}

ht_status cuda_alloc(ht_device *d, int64_t bytes, int32_t host, void **p, ht_error *error) {
  return guarded(error, [&] {
    const auto limit = host ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(d->facts.totalGlobalMem);
    check_alloc(d->account, bytes, limit);
    use(d);
    const size_t size = bytes > 0 ? static_cast<size_t>(bytes) : 1;
    if (host) {
      want_memory(
          "page-locked memory", [&] { return cudaHostAlloc(p, size, cudaHostAllocPortable); },
          // Call sweep, because during would wait: a stream may wait for an exchange between ranks that allocates
          // memory here.
          [&] { d->quiet.sweep(); });
      return;
    }
    want_memory(
        "device memory", [&] { return cudaMalloc(p, size); }, [&] { d->quiet.during([] {}); });
    d->account.add(bytes);
  });
}

void cuda_free(ht_device *d, void *p, int64_t bytes, int32_t host) {
  try_use(d);
  d->quiet.later([=] {
    if (host)
      Quiet::freed(cudaFreeHost(p), "page-locked memory");
    else
      Quiet::freed(cudaFree(p), "device memory");
  });
  if (!host) d->account.remove(bytes);
}

ht_status cuda_compile(ht_device *d, int32_t op, const void *params, size_t params_bytes, const ht_spec *in,
                       int32_t num_in, const ht_spec *out, int32_t num_out, ht_kernel **kernel, ht_error *error) {
  return guarded(error, [&] {
    *kernel = compiled(op, params, params_bytes, in, num_in, out, num_out, 0, [d] { use(d); });
    (*kernel)->device = d;
  });
}

// Deletes an object of the C ABI at quiescence (quiet.h), because the object owns memory, code or graphs. Selects the
// object's device first.
template <class Object> void free_on_device(Object *o) {
  try_use(o->device);
  o->device->quiet.later([o] { delete o; });
}

void cuda_kernel_free(ht_kernel *k) { free_on_device(k); }

ht_status cuda_program_create(ht_device *d, const ht_step *steps, int32_t count, ht_program **program,
                              ht_error *error) {
  return guarded(error, [&] {
    use(d);
    *program = new ht_program(d, steps, count, d->quiet, d->notes);
  });
}

void cuda_program_free(ht_program *p) { free_on_device(p); }

ht_status cuda_event_create(ht_device *d, ht_event **event, ht_error *error) {
  return guarded(error, [&] {
    use(d);
    *event = new ht_event{d, Event(d->pulse)};
  });
}

void cuda_event_free(ht_event *e) { free_on_device(e); }

ht_status cuda_stream_create(ht_device *d, ht_stream **stream, ht_error *error) {
  return guarded(error, [&] {
    use(d);
    auto s = std::make_unique<ht_stream>(ht_stream{d});
    check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "create a stream");
    *stream = s.release();
  });
}

// Runs body with the stream's device selected.
template <class Body> ht_status on(ht_stream *s, ht_error *error, Body body) {
  return guarded(error, [&] {
    use(s->device);
    body(s->stream);
  });
}

ht_status cuda_stream_run(ht_stream *s, ht_program *p, ht_error *error) {
  return on(s, error, [&](cudaStream_t stream) { p->impl.run(stream); });
}

ht_status cuda_stream_run_timed(ht_stream *s, ht_program *p, int64_t *elapsed_ns, ht_error *error) {
  return on(s, error, [&](cudaStream_t stream) {
    p->impl.run_timed(stream, elapsed_ns);
    check_faults(s->device->index);
  });
}

ht_status cuda_stream_copy(ht_stream *s, void *dst, const void *src, int64_t bytes, ht_error *error) {
  return on(s, error, [&](cudaStream_t stream) {
    check_copy(bytes);
    if (bytes > 0) check(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyDefault, stream), "copy");
  });
}

ht_status cuda_stream_record(ht_stream *s, ht_event *e, ht_error *error) {
  return on(s, error, [&](cudaStream_t stream) { e->impl.enqueue_record(stream); });
}

ht_status cuda_stream_wait(ht_stream *s, ht_event *e, ht_error *error) {
  return on(s, error, [&](cudaStream_t stream) {
    if (e->impl.state() != Event::pending) return e->impl.enqueue_wait(stream);
    s->device->quiet.stand(stream, [&] { e->impl.enqueue_wait(stream); });
  });
}

ht_status cuda_stream_sync(ht_stream *s, ht_error *error) {
  return on(s, error, [&](cudaStream_t stream) {
    check(cudaStreamSynchronize(stream), "synchronise a stream");
    check_faults(s->device->index);
    s->device->quiet.sweep();
  });
}

void want_mark(int32_t mark) {
  if (mark < 0 || mark >= HT_MAX_MARKS)
    throw Invalid("time mark: got " + std::to_string(mark) + ", want 0 to " + std::to_string(HT_MAX_MARKS - 1));
}

ht_status cuda_stream_mark(ht_stream *s, int32_t mark, ht_error *error) {
  return on(s, error, [&](cudaStream_t stream) {
    want_mark(mark);
    const auto i = static_cast<size_t>(mark);
    if (i >= s->marks.size()) s->marks.resize(i + 1);
    if (!s->marks[i]) check(cudaEventCreate(&s->marks[i]), "create a time mark");
    check(cudaEventRecord(s->marks[i], stream), "record a time mark");
  });
}

ht_status cuda_stream_between(ht_stream *s, int32_t from, int32_t to, int64_t *ns, ht_error *error) {
  return on(s, error, [&](cudaStream_t) {
    for (int32_t mark : {from, to}) {
      want_mark(mark);
      const auto i = static_cast<size_t>(mark);
      if (i >= s->marks.size() || !s->marks[i])
        throw Invalid("time mark " + std::to_string(mark) + " was not recorded");
    }
    float ms = 0;
    const cudaError_t e = cudaEventElapsedTime(&ms, s->marks[size_t(from)], s->marks[size_t(to)]);
    if (e == cudaErrorNotReady)
      throw Invalid("time marks " + std::to_string(from) + " and " + std::to_string(to) +
                    ": the stream has not completed both");
    check(e, "measure the time between two time marks");
    *ns = static_cast<int64_t>(1e6 * static_cast<double>(ms));
  });
}

void cuda_stream_free(ht_stream *s) {
  try_use(s->device);
  for (cudaEvent_t e : s->marks)
    if (e) cudaEventDestroy(e);
  cudaStreamDestroy(s->stream);
  delete s;
}

ht_status cuda_measure_peak(ht_device *d, int32_t what, double seconds, double *per_second, ht_error *error) {
  return guarded(error, [&] {
    use(d);
    *per_second = measure_peak(what, seconds);
  });
}

ht_status cuda_count(int32_t *count, ht_error *error) {
  return guarded(error, [&] { *count = visible_gpus(); });
}

void cuda_identity(const ht_device *d, ht_identity *identity) { *identity = d->identity; }

ht_status cuda_activity_start(ht_device *d, ht_error *error) {
  return guarded(error, [&] {
    use(d);
    start_activity();
  });
}

ht_status cuda_activity_stop(ht_device *d, const ht_activity **list, int64_t *count, int64_t *lost, ht_error *error) {
  return guarded(error, [&] {
    use(d);
    Activities recorded{};
    d->quiet.during([&] { recorded = stop_activity(); }); // waits for the whole GPU
    *list = recorded.list->data();
    *count = static_cast<int64_t>(recorded.list->size());
    *lost = recorded.lost;
  });
}

void cuda_activity_release(ht_device *) { free_activities(); }

ht_api table() {
  ht_api a = empty_table("cuda", HETERO_CUDA_BUILD);
  a.device = {cuda_open, cuda_close, cuda_info, cuda_layout_name, cuda_notes};
  a.memory = {cuda_alloc, cuda_free, memory_used<ht_device>};
  a.kernel = {cuda_compile, described, cuda_kernel_free};
  a.event = event_calls(cuda_event_create, cuda_event_free);
  a.program = {cuda_program_create, cuda_program_free};
  a.stream = {cuda_stream_create, cuda_stream_run,  cuda_stream_run_timed, cuda_stream_copy,
              cuda_stream_record, cuda_stream_wait, cuda_stream_sync,      nullptr,
              cuda_stream_free};
  static const ht_presence_calls presence{cuda_count, cuda_describe, cuda_identity};
  a.presence = &presence;
  static const ht_peak_calls peaks{cuda_measure_peak};
  a.peaks = &peaks;
  static const ht_mark_calls marks{cuda_stream_mark, cuda_stream_between};
  a.marks = &marks;
  static const ht_activity_calls activity{cuda_activity_start, cuda_activity_stop, cuda_activity_release};
  a.activity = &activity;
  return a;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const ht_api *ht_get_api(uint32_t abi_version) {
  static const ht_api api = table();
  return abi_version == HT_ABI_VERSION ? &api : nullptr;
}
