// api.cc: the C ABI of the CPU device. It checks arguments and converts exceptions to statuses.
#include <algorithm>
#include <cstring>

#include "calls.h"
#include "choices.h"
#include "headroom.h"
#include "isa.h"
#include "layout.h"
#include "machine.h"
#include "memory.h"
#include "pace.h"
#include "peak.h"
#include "program.h"
#include "team.h"
#if HT_HAVE_ONEDNN
#include "onednn.h"
#endif

using namespace hetero;

struct ht_device {
  int threads;
  int64_t memory_bytes;
  Account account;
  Slowdown slowdown;
};
struct ht_stream {
  ht_device *device;
  Pace pace;
  int64_t waited_ns = 0;
};

namespace {

// Each OS thread has its own team size. A oneDNN primitive uses the team size at the time of its creation.
void use_team(const ht_device *d) { hetero::use_team(d->threads); }

// Addresses that the kernel of one op may reserve, bytes. ResNet-50, GPT-2 and BERT took at most 4.4 MiB for an op.
// oneDNN does not check whether it gets memory for generated code, so the memory must be available before.
constexpr int64_t kCompileBytes = 6 << 20;

// --- the functions of the table -----------------------------------------------------------------

ht_status cpu_open(const ht_open_options *options, ht_device **device, ht_error *error) {
  return guarded(error, [&] {
    if (!options || !device) throw Invalid("open: got null options or a null pointer for the device");
    if (options->index != 0)
      throw Unavailable("cpu:" + std::to_string(options->index) + ": all CPUs of a machine are one device, index 0");
    if (options->threads < 0)
      throw Invalid("open: got " + std::to_string(options->threads) + " threads, want at least 0");
#if HT_HAVE_ONEDNN && defined(__x86_64__)
    // This call must precede the first use of oneDNN; later calls have no effect.
    if (isa() == Isa::generic) dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    if (isa() == Isa::avx2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (isa() == Isa::avx512 && !has_avx512bf16()) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_vnni);
    if (has_avx512bf16() && excludes_amx()) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
#endif
#if HT_HAVE_ONEDNN
    // oneDNN keeps up to 1024 primitives that no kernel uses any more, and reserves 256 KiB for each piece of generated
    // code. For plans of ResNet-50, these are 700 MiB of addresses.
    if (addresses_limited()) dnnl_set_primitive_cache_capacity(0);
#endif
    auto d = std::make_unique<ht_device>();
    d->threads = std::min(options->threads > 0 ? options->threads : usable_cores(), most_threads());
    d->memory_bytes = usable_memory();
    *device = d.release();
  });
}

void cpu_close(ht_device *d) { delete d; }

void cpu_info(const ht_device *d, ht_info *info) {
  *info = {};
  guarded(nullptr, [&] { std::strncpy(info->model, cpu_model().c_str(), sizeof info->model - 1); });
  std::strncpy(info->isa, isa_name(), sizeof info->isa - 1);
  info->threads = d->threads;
  info->fast_bf16 = has_avx512bf16();
  info->memory_bytes = d->memory_bytes;
}

void cpu_layout_name(const ht_device *, uint32_t layout, char *name, size_t name_bytes) {
  if (guarded(nullptr, [&] { copy_text(layout_name(layout), name, name_bytes); }) != HT_OK && name_bytes > 0) *name = 0;
}

void cpu_notes(const ht_device *, char *text, size_t text_bytes) {
  if (guarded(nullptr, [&] { copy_text(choice_notes(), text, text_bytes); }) != HT_OK && text_bytes > 0) *text = 0;
}

ht_status cpu_alloc(ht_device *d, int64_t bytes, int32_t host, void **p, ht_error *error) {
  return guarded(error, [&] {
    check_alloc(d->account, bytes, d->memory_bytes); // Linux would grant too much and kill the process later
    *p = allocate(bytes);
    if (!*p) throw OutOfMemory("alloc: " + refusal_of(bytes));
    if (!host) d->account.add(bytes);
  });
}

void cpu_free(ht_device *d, void *p, int64_t bytes, int32_t host) {
  release(p, bytes);
  if (!host) d->account.remove(bytes);
}

ht_status cpu_compile(ht_device *d, int32_t op, const void *params, size_t params_bytes, const ht_spec *in,
                      int32_t num_in, const ht_spec *out, int32_t num_out, ht_kernel **kernel, ht_error *error) {
  return guarded(error, [&] {
    *kernel = compiled(op, params, params_bytes, in, num_in, out, num_out, d->threads, [d] {
      use_team(d);
      want_addresses(kCompileBytes);
    });
  });
}

void cpu_kernel_free(ht_kernel *k) { delete k; }

ht_status cpu_program_create(ht_device *, const ht_step *steps, int32_t count, ht_program **program, ht_error *error) {
  return guarded(error, [&] { *program = new ht_program{Program(steps, count)}; });
}

void cpu_program_free(ht_program *p) { delete p; }

ht_status cpu_event_create(ht_device *, ht_event **event, ht_error *error) {
  return guarded(error, [&] { *event = new ht_event; });
}

void cpu_event_free(ht_event *e) { delete e; }

ht_status cpu_stream_create(ht_device *d, ht_stream **stream, ht_error *error) {
  return guarded(error, [&] { *stream = new ht_stream{d, Pace(d->slowdown)}; });
}

ht_status cpu_stream_run(ht_stream *s, ht_program *p, ht_error *error) {
  return guarded(error, [&] {
    use_team(s->device);
    p->impl.run(nullptr, s->pace, s->waited_ns);
  });
}

ht_status cpu_stream_run_timed(ht_stream *s, ht_program *p, int64_t *elapsed_ns, ht_error *error) {
  return guarded(error, [&] {
    use_team(s->device);
    p->impl.run(elapsed_ns, s->pace, s->waited_ns);
  });
}

ht_status cpu_stream_copy(ht_stream *, void *dst, const void *src, int64_t bytes, ht_error *error) {
  return guarded(error, [&] {
    check_copy(bytes);
    std::memmove(dst, src, static_cast<size_t>(bytes));
  });
}

ht_status cpu_stream_record(ht_stream *, ht_event *e, ht_error *) {
  e->impl.settle(Event::complete);
  return HT_OK;
}

ht_status cpu_stream_wait(ht_stream *, ht_event *e, ht_error *error) {
  return guarded(error, [&] { want_complete(e->impl, -1); });
}

ht_status cpu_stream_sync(ht_stream *, ht_error *) { return HT_OK; }

void cpu_stream_free(ht_stream *s) { delete s; }

ht_status cpu_measure_peak(ht_device *d, int32_t what, double seconds, double *per_second, ht_error *error) {
  return guarded(error, [&] {
    use_team(d);
    *per_second = measure_peak(what, seconds) / d->slowdown.factor();
  });
}

ht_status cpu_set_slowdown(ht_device *d, double factor, ht_error *error) {
  return guarded(error, [&] {
    if (!(factor >= 1 && factor <= HT_MAX_SLOWDOWN))
      throw Invalid("slowdown: got " + std::to_string(factor) + ", want 1 to " + std::to_string(HT_MAX_SLOWDOWN));
    d->slowdown.set(factor);
  });
}

void cpu_get_slowdown(const ht_device *d, ht_slowdown *s) {
  *s = {d->slowdown.factor(), d->slowdown.worked_ns(), d->slowdown.idle_ns()};
}

int64_t cpu_stream_waited(const ht_stream *s) { return s->waited_ns; }

const char *build_text() {
#if HT_HAVE_ONEDNN
  static const std::string text = [] {
    const dnnl_version_t *v = dnnl_version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch) +
           ", OpenMP";
  }();
  return text.c_str();
#else
  return "plain kernels without oneDNN, OpenMP";
#endif
}

ht_api table() {
  ht_api a = empty_table("cpu", build_text());
  a.device = {cpu_open, cpu_close, cpu_info, cpu_layout_name, cpu_notes};
  a.memory = {cpu_alloc, cpu_free, memory_used<ht_device>};
  a.kernel = {cpu_compile, described, cpu_kernel_free};
  a.event = event_calls(cpu_event_create, cpu_event_free);
  a.program = {cpu_program_create, cpu_program_free};
  a.stream = {cpu_stream_create, cpu_stream_run,  cpu_stream_run_timed, cpu_stream_copy, cpu_stream_record,
              cpu_stream_wait,   cpu_stream_sync, cpu_stream_waited,    cpu_stream_free};
  static const ht_peak_calls peaks{cpu_measure_peak};
  a.peaks = &peaks;
  static const ht_slowdown_calls slowdown{cpu_set_slowdown, cpu_get_slowdown};
  a.slowdown = &slowdown;
  return a;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const ht_api *ht_get_api(uint32_t abi_version) {
  static const ht_api api = table();
  return abi_version == HT_ABI_VERSION ? &api : nullptr;
}
