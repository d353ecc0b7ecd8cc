// api.cc: the C ABI of the CPU device: checks arguments, turns exceptions into statuses.
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "isa.h"
#include "layout.h"
#include "machine.h"
#include "memory.h"
#include "ops.h"
#include "peak.h"
#include "program.h"
#if HT_HAVE_ONEDNN
#include "onednn.h"
#endif

using namespace hetero;

struct ht_device {
  int threads;
  int64_t memory_bytes;
  Account account;
};
struct ht_stream {
  ht_device *device;
};

namespace {

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Timeout : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Unavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ht_status fail(ht_error *error, ht_status status, const char *text) {
  if (error) {
    std::strncpy(error->text, text, sizeof error->text - 1);
    error->text[sizeof error->text - 1] = 0;
  }
  return status;
}

// Runs body; no exception leaves it.
template <class Body> ht_status guarded(ht_error *error, Body body) {
  try {
    body();
    return HT_OK;
  } catch (const Unsupported &e) {
    return fail(error, HT_UNSUPPORTED, e.what());
  } catch (const Invalid &e) {
    return fail(error, HT_INVALID, e.what());
  } catch (const OutOfMemory &e) {
    return fail(error, HT_OUT_OF_MEMORY, e.what());
  } catch (const std::bad_alloc &) {
    return fail(error, HT_OUT_OF_MEMORY, "no memory for the library's own objects");
  } catch (const Timeout &e) {
    return fail(error, HT_TIMEOUT, e.what());
  } catch (const Unavailable &e) {
    return fail(error, HT_UNAVAILABLE, e.what());
  } catch (const std::exception &e) {
    return fail(error, HT_DEVICE_FAILURE, e.what());
  } catch (...) {
    return fail(error, HT_DEVICE_FAILURE, "an exception that is no std::exception");
  }
}

// What every request of an op must have.
struct OpInfo {
  ht_op op;
  const char *name;
  size_t params_bytes;
  int min_in, max_in, min_out, max_out;
};

constexpr OpInfo kOps[] = {
    {HT_CONV2D, "conv2d", sizeof(ht_conv2d_params), 2, 3, 1, 1},
    {HT_CONV2D_DIFF_SRC, "conv2d_diff_src", sizeof(ht_conv2d_params), 2, 2, 1, 1},
    {HT_CONV2D_DIFF_WEIGHTS, "conv2d_diff_weights", sizeof(ht_conv2d_params), 2, 2, 1, 2},
    {HT_LINEAR, "linear", sizeof(ht_linear_params), 2, 3, 1, 1},
    {HT_LINEAR_DIFF_SRC, "linear_diff_src", sizeof(ht_linear_params), 2, 2, 1, 1},
    {HT_LINEAR_DIFF_WEIGHTS, "linear_diff_weights", sizeof(ht_linear_params), 2, 2, 1, 2},
    {HT_BATCH_NORM_STATS, "batch_norm_stats", sizeof(ht_batch_norm_params), 1, 1, 2, 2},
    {HT_BATCH_NORM_APPLY, "batch_norm_apply", sizeof(ht_batch_norm_params), 5, 6, 1, 2},
    {HT_BATCH_NORM_DIFF_REDUCE, "batch_norm_diff_reduce", sizeof(ht_batch_norm_params), 6, 8, 2, 3},
    {HT_BATCH_NORM_DIFF_APPLY, "batch_norm_diff_apply", sizeof(ht_batch_norm_params), 8, 8, 1, 1},
    {HT_BATCH_NORM_RUNNING, "batch_norm_running", sizeof(ht_batch_norm_running_params), 4, 4, 2, 2},
    {HT_MAX_POOL2D, "max_pool2d", sizeof(ht_pool2d_params), 1, 1, 1, 2},
    {HT_MAX_POOL2D_DIFF, "max_pool2d_diff", sizeof(ht_pool2d_params), 2, 2, 1, 1},
    {HT_AVG_POOL2D, "avg_pool2d", sizeof(ht_pool2d_params), 1, 1, 1, 1},
    {HT_AVG_POOL2D_DIFF, "avg_pool2d_diff", sizeof(ht_pool2d_params), 1, 1, 1, 1},
    {HT_GLOBAL_AVG_POOL, "global_avg_pool", 0, 1, 1, 1, 1},
    {HT_GLOBAL_AVG_POOL_DIFF, "global_avg_pool_diff", 0, 1, 1, 1, 1},
    {HT_UNARY, "unary", sizeof(ht_elementwise_params), 1, 1, 1, 1},
    {HT_UNARY_DIFF, "unary_diff", sizeof(ht_elementwise_params), 2, 2, 1, 1},
    {HT_BINARY, "binary", sizeof(ht_elementwise_params), 2, 2, 1, 1},
    {HT_SCALE, "scale", 0, 2, 2, 1, 1},
    {HT_FILL, "fill", sizeof(ht_fill_params), 0, 0, 1, 1},
    {HT_DROPOUT, "dropout", sizeof(ht_dropout_params), 3, 3, 1, 1},
    {HT_REORDER, "reorder", 0, 1, 1, 1, 1},
    {HT_TRANSPOSE, "transpose", sizeof(ht_move_params), 1, 1, 1, 1},
    {HT_RESHAPE, "reshape", 0, 1, 1, 1, 1},
    {HT_CONCAT, "concat", sizeof(ht_move_params), 1, HT_MAX_OPERANDS, 1, 1},
    {HT_SLICE, "slice", sizeof(ht_move_params), 1, 1, 1, 1},
    {HT_PAD, "pad", sizeof(ht_move_params), 1, 1, 1, 1},
    {HT_REDUCE, "reduce", sizeof(ht_move_params), 1, 1, 1, 1},
    {HT_BROADCAST, "broadcast", sizeof(ht_move_params), 1, 1, 1, 1},
    {HT_SOFTMAX_CROSS_ENTROPY, "softmax_cross_entropy", sizeof(ht_loss_params), 2, 2, 3, 3},
    {HT_SOFTMAX_CROSS_ENTROPY_DIFF, "softmax_cross_entropy_diff", sizeof(ht_loss_params), 4, 4, 1, 1},
    {HT_IMAGE_NORMALIZE, "image_normalize", sizeof(ht_image_normalize_params), 1, 1, 1, 1},
    {HT_SUM_SQUARES, "sum_squares", sizeof(ht_optim_params), 1, 1, 1, 1},
    {HT_GRAD_CONTROL, "grad_control", sizeof(ht_optim_params), 2, 2, 1, 1},
    {HT_SGD, "sgd", sizeof(ht_optim_params), 4, 5, 1, 2},
    {HT_ADAMW, "adamw", sizeof(ht_optim_params), 6, 6, 3, 3},
};
static_assert(sizeof(kOps) / sizeof(kOps[0]) == HT_OP_END - 1, "one line an op");

const OpInfo *op_info(int32_t op) { return op >= 1 && op < HT_OP_END ? &kOps[op - 1] : nullptr; }

// Checks a spec of a request, known = its layout must be one (an input may lie anywhere: HT_LAYOUT_ANY).
ht_spec checked_spec(const ht_spec &given, bool output) {
  ht_spec s = given;
  if (s.dtype < HT_F32 || s.dtype > HT_OPAQUE) throw Invalid("got element type " + std::to_string(s.dtype));
  if (s.ndim < 0 || s.ndim > HT_MAX_DIMS) throw Invalid("got " + std::to_string(s.ndim) + " dimensions, want at most " + std::to_string(HT_MAX_DIMS));
  if (s.dtype == HT_OPAQUE) {
    if (!output && s.bytes <= 0) throw Invalid("an opaque tensor of unknown size: want the spec that its producer's kernel gives");
    return s;
  }
  int64_t n = 1;
  for (int i = 0; i < s.ndim; i++)
    if (s.dims[i] < 1 || __builtin_mul_overflow(n, s.dims[i], &n) || n > INT64_MAX / 16) throw Invalid("got dims " + describe(s));
  if (s.layout == HT_LAYOUT_ANY) return s;
  int64_t bytes = bytes_in_memory(s);
  if (s.bytes != 0 && s.bytes != bytes) throw Invalid(describe(s) + ": got " + std::to_string(s.bytes) + " bytes, want " + std::to_string(bytes));
  s.bytes = bytes;
  return s;
}

Specs checked_specs(const char *side, const ht_spec *specs, int32_t count, int least, int most) {
  if (count < least || count > most || (count > 0 && !specs))
    throw Invalid("got " + std::to_string(count) + " " + side + "s, want " + std::to_string(least) + " to " + std::to_string(most));
  Specs out;
  for (int32_t i = 0; i < count; i++) {
    try {
      out.push_back(checked_spec(specs[i], side[0] == 'o'));
    } catch (const Invalid &e) {
      throw Invalid(std::string(side) + " " + std::to_string(i) + ": " + e.what());
    }
  }
  return out;
}

// What a factory must have filled in; a fault here is the library's own.
void check_kernel(const Kernel &k, const Request &r) {
  if (k.in.size() != r.in.size() || k.out.size() != r.out.size()) throw std::logic_error("the kernel has other operands than the request");
  for (const Specs *side : {&k.in, &k.out})
    for (const ht_spec &s : *side)
      if (s.layout == HT_LAYOUT_ANY || s.bytes <= 0) throw std::logic_error("the kernel leaves an operand open: " + describe(s));
  for (size_t i = 0; i < k.in.size(); i++)
    if (!same_dims(k.in[i], r.in[i]) || k.in[i].dtype != r.in[i].dtype) throw std::logic_error("the kernel changed input " + std::to_string(i));
  for (size_t i = 0; i < k.out.size(); i++)
    if (r.out[i].layout != HT_LAYOUT_ANY && r.out[i].dtype != HT_OPAQUE && k.out[i].layout != r.out[i].layout)
      throw std::logic_error("the kernel changed the layout of output " + std::to_string(i));
}

// Makes the team of the calling OS thread that of the device: team size is a property of the thread, and primitives fix
// theirs when they are made. The workers are started here, with signals blocked: those belong to Go's threads, whose
// handlers expect Go's stacks. OpenMP told to bind threads (OMP_PROC_BIND) may bind workers but not this thread, from
// which Go starts others.
void use_team(const ht_device *d) {
  static thread_local int team = 0;
  if (team == d->threads) return;
  omp_set_dynamic(0);
  omp_set_num_threads(d->threads);
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  cpu_set_t affinity;
  bool have_affinity = sched_getaffinity(0, sizeof affinity, &affinity) == 0;
  int got = 0;
#pragma omp parallel
  {
#pragma omp single
    got = omp_get_num_threads();
  }
  if (have_affinity) sched_setaffinity(0, sizeof affinity, &affinity);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (got != d->threads) throw std::runtime_error("got a team of " + std::to_string(got) + " threads, want " + std::to_string(d->threads));
  team = d->threads;
}

// --- the functions of the table -----------------------------------------------------------------

ht_status cpu_open(const ht_open_options *options, ht_device **device, ht_error *error) {
  return guarded(error, [&] {
    if (!options || !device) throw Invalid("open: no options or no place for the device");
    if (options->index != 0) throw Unavailable("cpu:" + std::to_string(options->index) + ": all CPUs of a machine are one device, index 0");
    if (options->threads < 0) throw Invalid("open: got " + std::to_string(options->threads) + " threads, want at least 0");
#if HT_HAVE_ONEDNN && defined(__x86_64__)
    // Before oneDNN's first use; later calls are refused and change nothing.
    if (isa() == Isa::generic) dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    if (isa() == Isa::avx2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (isa() == Isa::avx512 && !has_avx512bf16()) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_vnni);
#endif
    auto d = std::make_unique<ht_device>();
    d->threads = std::min(options->threads > 0 ? options->threads : usable_cores(), omp_get_thread_limit());
    d->memory_bytes = usable_memory();
    *device = d.release();
  });
}

void cpu_close(ht_device *d) { delete d; }

void cpu_info(const ht_device *d, ht_info *info) {
  *info = {};
  std::strncpy(info->model, cpu_model().c_str(), sizeof info->model - 1);
  std::strncpy(info->isa, isa_name(), sizeof info->isa - 1);
  info->threads = d->threads;
  info->fast_bf16 = has_avx512bf16();
  info->memory_bytes = d->memory_bytes;
}

void cpu_memory(const ht_device *d, int64_t *allocated, int64_t *peak) {
  *allocated = d->account.allocated();
  *peak = d->account.peak();
}

void cpu_layout_name(const ht_device *, uint32_t layout, char *name, size_t name_bytes) {
  if (name_bytes == 0) return;
  std::strncpy(name, layout_name(layout).c_str(), name_bytes - 1);
  name[name_bytes - 1] = 0;
}

ht_status cpu_alloc(ht_device *d, int64_t bytes, int32_t host, void **p, ht_error *error) {
  return guarded(error, [&] {
    if (bytes < 0) throw Invalid("alloc: got " + std::to_string(bytes) + " bytes");
    // Linux grants more than there is and kills later.
    if (bytes > d->memory_bytes - d->account.allocated())
      throw OutOfMemory("got " + std::to_string(d->account.allocated()) + " bytes, want " + std::to_string(bytes) + " more, of " +
                        std::to_string(d->memory_bytes));
    *p = allocate(bytes);
    if (!*p) throw OutOfMemory("the system has no " + std::to_string(bytes) + " bytes");
    if (!host) d->account.add(bytes);
  });
}

void cpu_free(ht_device *d, void *p, int64_t bytes, int32_t host) {
  release(p, bytes);
  if (!host) d->account.remove(bytes);
}

ht_status cpu_compile(ht_device *d, int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in, const ht_spec *out,
                      int32_t num_out, ht_kernel **kernel, ht_error *error) {
  return guarded(error, [&] {
    const OpInfo *info = op_info(op);
    if (!info) throw Unsupported("op number " + std::to_string(op));
    std::string name = info->name;
    try {
      if (params_bytes != info->params_bytes || (params_bytes > 0 && !params))
        throw Invalid("got " + std::to_string(params_bytes) + " bytes of parameters, want " + std::to_string(info->params_bytes));
      Request r{info->op, params, checked_specs("input", in, num_in, info->min_in, info->max_in),
                checked_specs("output", out, num_out, info->min_out, info->max_out), d->threads};
      Factory make = factory_of(info->op);
      if (!make) throw Unsupported("no kernel");
      use_team(d);
      auto k = std::make_unique<ht_kernel>(ht_kernel{info->op, make(r)});
      check_kernel(*k->impl, r);
      *kernel = k.release();
    } catch (const Invalid &e) {
      throw Invalid(name + ": " + e.what());
    } catch (const Unsupported &e) {
      throw Unsupported(name + ": " + e.what());
    } catch (const std::bad_alloc &) {
      throw;
    } catch (const std::exception &e) {
      throw std::runtime_error(name + ": " + e.what());
    }
  });
}

void cpu_kernel_desc(const ht_kernel *kernel, ht_kernel_desc *desc) {
  const Kernel &k = *kernel->impl;
  *desc = {k.in.data(), k.out.data(), static_cast<int32_t>(k.in.size()), static_cast<int32_t>(k.out.size()), k.workspace, k.inplace.data(),
           static_cast<int32_t>(k.inplace.size())};
}

void cpu_kernel_free(ht_kernel *k) { delete k; }

ht_status cpu_program_create(ht_device *, const ht_step *steps, int32_t count, ht_program **program, ht_error *error) {
  return guarded(error, [&] { *program = new ht_program{Program(steps, count)}; });
}

void cpu_program_free(ht_program *p) { delete p; }

ht_status cpu_event_create(ht_device *, ht_event **event, ht_error *error) {
  return guarded(error, [&] { *event = new ht_event; });
}

int32_t cpu_event_done(ht_event *e) { return e->impl.state() != Event::pending; }

void wait_for(ht_event *e, int64_t timeout_ns) {
  if (!e->impl.wait(timeout_ns)) throw Timeout("event: not complete after " + std::to_string(timeout_ns / 1000000) + " ms");
  if (e->impl.state() == Event::failed) throw std::runtime_error("event: the program that was to record it failed");
}

ht_status cpu_event_wait(ht_event *e, int64_t timeout_ns, ht_error *error) {
  return guarded(error, [&] { wait_for(e, timeout_ns); });
}

void cpu_event_free(ht_event *e) { delete e; }

ht_status cpu_stream_create(ht_device *d, ht_stream **stream, ht_error *error) {
  return guarded(error, [&] { *stream = new ht_stream{d}; });
}

ht_status cpu_stream_run(ht_stream *s, ht_program *p, ht_error *error) {
  return guarded(error, [&] {
    use_team(s->device);
    p->impl.run(nullptr);
  });
}

ht_status cpu_stream_run_timed(ht_stream *s, ht_program *p, int64_t *elapsed_ns, ht_error *error) {
  return guarded(error, [&] {
    use_team(s->device);
    p->impl.run(elapsed_ns);
  });
}

ht_status cpu_stream_copy(ht_stream *, void *dst, const void *src, int64_t bytes, ht_error *error) {
  return guarded(error, [&] {
    if (bytes < 0) throw Invalid("copy: got " + std::to_string(bytes) + " bytes");
    std::memmove(dst, src, static_cast<size_t>(bytes));
  });
}

ht_status cpu_stream_record(ht_stream *, ht_event *e, ht_error *) {
  e->impl.settle(Event::complete);
  return HT_OK;
}

ht_status cpu_stream_wait(ht_stream *, ht_event *e, ht_error *error) {
  return guarded(error, [&] { wait_for(e, -1); });
}

ht_status cpu_stream_sync(ht_stream *, ht_error *) { return HT_OK; }

void cpu_stream_free(ht_stream *s) { delete s; }

ht_status cpu_measure_peak(ht_device *d, int32_t what, double seconds, double *per_second, ht_error *error) {
  return guarded(error, [&] {
    use_team(d);
    *per_second = measure_peak(what, seconds);
  });
}

const char *build_text() {
#if HT_HAVE_ONEDNN
  static const std::string text = [] {
    const dnnl_version_t *v = dnnl_version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch) + ", OpenMP";
  }();
  return text.c_str();
#else
  return "plain kernels without oneDNN, OpenMP";
#endif
}

} // namespace

const char *hetero::op_name(ht_op op) {
  const OpInfo *info = op_info(op);
  return info ? info->name : nullptr;
}

extern "C" __attribute__((visibility("default"))) const ht_api *ht_get_api(uint32_t abi_version) {
  static const ht_api api = {
      HT_ABI_VERSION,    sizeof(ht_api),     "cpu",           build_text(),    cpu_open,          cpu_close,          cpu_info,
      cpu_memory,        cpu_layout_name,    cpu_alloc,       cpu_free,        cpu_compile,       cpu_kernel_desc,    cpu_kernel_free,
      cpu_program_create, cpu_program_free,  cpu_event_create, cpu_event_done, cpu_event_wait,    cpu_event_free,     cpu_stream_create,
      cpu_stream_run,    cpu_stream_run_timed, cpu_stream_copy, cpu_stream_record, cpu_stream_wait, cpu_stream_sync,  cpu_stream_free,
      cpu_measure_peak,
  };
  return abi_version == HT_ABI_VERSION ? &api : nullptr;
}
