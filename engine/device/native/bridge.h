/* bridge.h: wrappers of the functions of hetero_device.h for cgo. They return results by value, so a successful call
 * allocates memory neither on Go's heap nor on C's heap. */
#ifndef HETERO_BRIDGE_H
#define HETERO_BRIDGE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hetero_device.h"

/* One field per op, in the order of HT_OPS. The field's name is the kind of the op, and its type is the op's parameter
 * struct. Go finds the number and the parameters of an op by this name. */
typedef struct ht_op_params {
#define HT_OP(NUMBER, NAME, PARAMS, ...) PARAMS NAME;
  HT_OPS(HT_OP)
#undef HT_OP
} ht_op_params;

typedef struct ht_result {
  void *value;
  char *error; /* error text, which the caller frees with free(); NULL if there is no text */
  ht_status status;
} ht_result;

static inline ht_result ht_result_of(ht_status status, void *value, const char *text) {
  ht_result r = {status == HT_OK ? value : NULL, NULL, status};
  if (status != HT_OK && text[0]) r.error = strdup(text);
  return r;
}

/* Loads a library and gets its table of functions. environment holds count pairs of name and value. ht_load sets these
 * variables before the library initialises; variables that the process has already set keep their values. Afterwards
 * ht_load restores the CPU affinity of the calling thread: OpenMP with bound threads pins this thread, and Go starts
 * other threads from it. */
static inline ht_result ht_load(const char *path, char **environment, int count) {
  cpu_set_t affinity;
  int have_affinity = sched_getaffinity(0, sizeof affinity, &affinity) == 0;
  int added[64];
  for (int i = 0; i < count && i < 64; i++) {
    added[i] = getenv(environment[2 * i]) == NULL;
    if (added[i]) setenv(environment[2 * i], environment[2 * i + 1], 1);
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char *why = library ? "" : dlerror();
  ht_result r;
  if (!library) {
    r = ht_result_of(HT_UNAVAILABLE, NULL, why ? why : "dlopen failed");
  } else {
    const ht_api *(*get)(uint32_t) = (const ht_api *(*)(uint32_t))dlsym(library, "ht_get_api");
    const ht_api *api = get ? get(HT_ABI_VERSION) : NULL;
    char text[128] = "it exports no ht_get_api";
    if (get)
      snprintf(text, sizeof text, "it does not serve version %d of the device ABI: built from other sources?",
               HT_ABI_VERSION);
    if (api && (api->abi_version != HT_ABI_VERSION || api->table_bytes < sizeof(ht_api))) {
      snprintf(text, sizeof text, "its table has version %u and %u bytes, want version %d and %zu",
               (unsigned)api->abi_version, (unsigned)api->table_bytes, HT_ABI_VERSION, sizeof(ht_api));
      api = NULL;
    }
    r = ht_result_of(api ? HT_OK : HT_UNAVAILABLE, (void *)api, text);
  }
  for (int i = 0; i < count && i < 64; i++)
    if (added[i]) unsetenv(environment[2 * i]);
  if (have_affinity) sched_setaffinity(0, sizeof affinity, &affinity);
  return r;
}

#define HT_CALL(type, call)                                                                                            \
  type *value = NULL;                                                                                                  \
  ht_error error;                                                                                                      \
  error.text[0] = 0;                                                                                                   \
  (void)value;                                                                                                         \
  ht_status status = (call);                                                                                           \
  return ht_result_of(status, value, error.text)

static inline ht_result ht_do_open(const ht_api *api, int32_t index, int32_t threads) {
  ht_open_options options = {index, threads};
  HT_CALL(ht_device, api->device.open(&options, &value, &error));
}
static inline void ht_do_close(const ht_api *api, ht_device *d) { api->device.close(d); }
static inline void ht_do_info(const ht_api *api, ht_device *d, ht_info *info) { api->device.info(d, info); }
typedef struct ht_memory {
  int64_t allocated, peak;
} ht_memory;
static inline ht_memory ht_do_memory(const ht_api *api, ht_device *d) {
  ht_memory m = {0, 0};
  api->memory.used(d, &m.allocated, &m.peak);
  return m;
}
static inline void ht_do_layout_name(const ht_api *api, ht_device *d, uint32_t layout, char *name, size_t bytes) {
  api->device.layout_name(d, layout, name, bytes);
}
static inline ht_result ht_do_alloc(const ht_api *api, ht_device *d, int64_t bytes, int32_t host) {
  HT_CALL(void, api->memory.alloc(d, bytes, host, &value, &error));
}
static inline void ht_do_free(const ht_api *api, ht_device *d, void *p, int64_t bytes, int32_t host) {
  api->memory.free(d, p, bytes, host);
}
static inline ht_result ht_do_compile(const ht_api *api, ht_device *d, int32_t op, const void *params,
                                      size_t params_bytes, const ht_spec *in, int32_t num_in, const ht_spec *out,
                                      int32_t num_out) {
  HT_CALL(ht_kernel, api->kernel.compile(d, op, params, params_bytes, in, num_in, out, num_out, &value, &error));
}
static inline void ht_do_kernel_desc(const ht_api *api, ht_kernel *k, ht_kernel_desc *desc) {
  api->kernel.desc(k, desc);
}
static inline void ht_do_kernel_free(const ht_api *api, ht_kernel *k) { api->kernel.free(k); }
static inline ht_result ht_do_program_create(const ht_api *api, ht_device *d, const ht_step *steps, int32_t count) {
  HT_CALL(ht_program, api->program.create(d, steps, count, &value, &error));
}
static inline void ht_do_program_free(const ht_api *api, ht_program *p) { api->program.free(p); }
static inline ht_result ht_do_event_create(const ht_api *api, ht_device *d) {
  HT_CALL(ht_event, api->event.create(d, &value, &error));
}
static inline int32_t ht_do_event_done(const ht_api *api, ht_event *e) { return api->event.done(e); }
static inline ht_result ht_do_event_wait(const ht_api *api, ht_event *e, int64_t timeout_ns) {
  HT_CALL(void, api->event.wait(e, timeout_ns, &error));
}
static inline ht_result ht_do_event_reset(const ht_api *api, ht_event *e) {
  HT_CALL(void, api->event.reset(e, &error));
}
static inline ht_result ht_do_event_complete(const ht_api *api, ht_event *e) {
  HT_CALL(void, api->event.complete(e, &error));
}
static inline void ht_do_event_free(const ht_api *api, ht_event *e) { api->event.free(e); }
static inline ht_result ht_do_stream_create(const ht_api *api, ht_device *d) {
  HT_CALL(ht_stream, api->stream.create(d, &value, &error));
}
static inline ht_result ht_do_stream_run(const ht_api *api, ht_stream *s, ht_program *p) {
  HT_CALL(void, api->stream.run(s, p, &error));
}
static inline ht_result ht_do_stream_run_timed(const ht_api *api, ht_stream *s, ht_program *p, int64_t *elapsed_ns) {
  HT_CALL(void, api->stream.run_timed(s, p, elapsed_ns, &error));
}
static inline ht_result ht_do_stream_copy(const ht_api *api, ht_stream *s, void *dst, const void *src, int64_t bytes) {
  HT_CALL(void, api->stream.copy(s, dst, src, bytes, &error));
}
static inline ht_result ht_do_stream_record(const ht_api *api, ht_stream *s, ht_event *e) {
  HT_CALL(void, api->stream.record(s, e, &error));
}
static inline ht_result ht_do_stream_wait(const ht_api *api, ht_stream *s, ht_event *e) {
  HT_CALL(void, api->stream.wait(s, e, &error));
}
static inline ht_result ht_do_stream_sync(const ht_api *api, ht_stream *s) {
  HT_CALL(void, api->stream.sync(s, &error));
}
static inline void ht_do_stream_free(const ht_api *api, ht_stream *s) { api->stream.free(s); }
static inline ht_result ht_do_measure_peak(const ht_api *api, ht_device *d, int32_t what, double seconds,
                                           double *per_second) {
  if (!api->peaks) return ht_result_of(HT_UNSUPPORTED, NULL, "it cannot measure its peaks");
  HT_CALL(void, api->peaks->measure(d, what, seconds, per_second, &error));
}
static inline ht_result ht_do_set_slowdown(const ht_api *api, ht_device *d, double factor) {
  if (!api->slowdown) return ht_result_of(HT_UNSUPPORTED, NULL, "it cannot be slowed down");
  HT_CALL(void, api->slowdown->set(d, factor, &error));
}
static inline ht_slowdown ht_do_slowdown(const ht_api *api, ht_device *d) {
  ht_slowdown s = {1, 0, 0};
  if (api->slowdown) api->slowdown->get(d, &s);
  return s;
}
/* Returns the time that the stream has waited, in ns, or -1 if the library cannot measure it. */
static inline int64_t ht_do_stream_waited(const ht_api *api, ht_stream *s) {
  return api->stream.waited ? api->stream.waited(s) : -1;
}
static inline void ht_do_notes(const ht_api *api, ht_device *d, char *text, size_t bytes) {
  text[0] = 0;
  if (api->device.notes) api->device.notes(d, text, bytes);
}
static inline int ht_has_marks(const ht_api *api) { return api->marks != NULL; }
static inline ht_result ht_do_stream_mark(const ht_api *api, ht_stream *s, int32_t mark) {
  HT_CALL(void, api->marks->set(s, mark, &error));
}
static inline ht_result ht_do_stream_between(const ht_api *api, ht_stream *s, int32_t from, int32_t to, int64_t *ns) {
  HT_CALL(void, api->marks->between(s, from, to, ns, &error));
}
static inline ht_result ht_do_count(const ht_api *api, int32_t *count) {
  *count = 1;
  if (!api->presence) return ht_result_of(HT_OK, NULL, "");
  HT_CALL(void, api->presence->count(count, &error));
}
static inline ht_result ht_do_describe(const ht_api *api, int32_t index, ht_info *info) {
  memset(info, 0, sizeof *info);
  if (!api->presence) return ht_result_of(HT_UNSUPPORTED, NULL, "it must be opened to be described");
  HT_CALL(void, api->presence->describe(index, info, &error));
}
static inline void ht_do_identity(const ht_api *api, ht_device *d, ht_identity *identity) {
  memset(identity, 0, sizeof *identity);
  if (api->presence) api->presence->identity(d, identity);
}

static inline ht_result ht_do_activity_start(const ht_api *api, ht_device *d) {
  if (!api->activity) return ht_result_of(HT_UNSUPPORTED, NULL, "it cannot record its activity");
  HT_CALL(void, api->activity->start(d, &error));
}
static inline int64_t ht_monotonic_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
typedef struct ht_activities {
  const ht_activity *list;
  int64_t count, lost;
} ht_activities;
static inline ht_result ht_do_activity_stop(const ht_api *api, ht_device *d, ht_activities *a) {
  memset(a, 0, sizeof *a);
  if (!api->activity) return ht_result_of(HT_UNSUPPORTED, NULL, "it cannot record its activity");
  HT_CALL(void, api->activity->stop(d, &a->list, &a->count, &a->lost, &error));
}
static inline void ht_do_activity_free(const ht_api *api, ht_device *d) { api->activity->release(d); }

#endif
