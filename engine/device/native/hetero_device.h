/* hetero_device.h: the whole C ABI between the engine (Go) and a native device library.
 *
 * A library exports ONE function, ht_get_api, which returns a table of functions. The table only grows at
 * its end; ht_abi_version changes when anything before the end does.
 *
 * Rules for a library:
 *   - every call that can fail returns ht_status and, if not HT_OK, fills the caller's ht_error;
 *   - no exception, exit or abort crosses this boundary, no signal handler is installed;
 *   - strings, parameters, specs and lists passed in are read during the call only; strings handed out live as long as the
 *     library;
 *   - an ht_error may be NULL.
 *
 * Ops and their operands are those of package engine/device, one parameter struct an op, documented there.
 */
#ifndef HETERO_DEVICE_H
#define HETERO_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HT_ABI_VERSION 2
#define HT_MAX_DIMS 6
#define HT_MAX_OPERANDS 16
#define HT_MAX_SLOWDOWN 1000

typedef enum ht_status {
  HT_OK = 0,
  HT_UNSUPPORTED = 1, /* no such kernel: the planner decomposes the op */
  HT_INVALID = 2,     /* wrong argument */
  HT_OUT_OF_MEMORY = 3,
  HT_DEVICE_FAILURE = 4,
  HT_TIMEOUT = 5,
  HT_UNAVAILABLE = 6, /* no such device on this machine */
  HT_ABSENT = 7,      /* likewise, and nothing is wrong: the text says all */
} ht_status;

typedef struct ht_error {
  char text[1024]; /* NUL-terminated: what, where, got, want */
} ht_error;

/* The values of tensor.DType. */
typedef enum ht_dtype {
  HT_F32 = 1,
  HT_F64 = 2,
  HT_BF16 = 3,
  HT_F16 = 4,
  HT_I64 = 5,
  HT_I32 = 6,
  HT_U32 = 7,
  HT_U8 = 8,
  HT_OPAQUE = 9,
} ht_dtype;

#define HT_LAYOUT_PLAIN 0u
#define HT_LAYOUT_ANY 1u
#define HT_LAYOUT_FIRST_PRIVATE 16u

typedef struct ht_spec {
  int32_t dtype; /* ht_dtype */
  int32_t ndim;
  int64_t dims[HT_MAX_DIMS];
  uint32_t layout;
  uint32_t reserved;
  int64_t bytes; /* size in memory with padding; 0 in requests where the library shall say */
} ht_spec;

/* --- ops ----------------------------------------------------------------------------------------- */

typedef enum ht_op {
  HT_CONV2D = 1,
  HT_CONV2D_DIFF_SRC,
  HT_CONV2D_DIFF_WEIGHTS,
  HT_LINEAR,
  HT_LINEAR_DIFF_SRC,
  HT_LINEAR_DIFF_WEIGHTS,
  HT_BATCH_NORM_STATS,
  HT_BATCH_NORM_APPLY,
  HT_BATCH_NORM_DIFF_REDUCE,
  HT_BATCH_NORM_DIFF_APPLY,
  HT_BATCH_NORM_RUNNING,
  HT_MAX_POOL2D,
  HT_MAX_POOL2D_DIFF,
  HT_AVG_POOL2D,
  HT_AVG_POOL2D_DIFF,
  HT_GLOBAL_AVG_POOL,
  HT_GLOBAL_AVG_POOL_DIFF,
  HT_UNARY,
  HT_UNARY_DIFF,
  HT_BINARY,
  HT_SCALE,
  HT_FILL,
  HT_DROPOUT,
  HT_REORDER,
  HT_TRANSPOSE,
  HT_RESHAPE,
  HT_CONCAT,
  HT_SLICE,
  HT_PAD,
  HT_REDUCE,
  HT_BROADCAST,
  HT_SOFTMAX_CROSS_ENTROPY,
  HT_SOFTMAX_CROSS_ENTROPY_DIFF,
  HT_IMAGE_NORMALIZE,
  HT_SUM_SQUARES,
  HT_GRAD_CONTROL,
  HT_SGD,
  HT_ADAMW,
  HT_BATCH_NORM_MERGE,
  HT_MOVING_AVERAGE,
  HT_OP_END /* one past the last */
} ht_op;

/* HT_CONV2D*: kernel and bias matter to _DIFF_WEIGHTS only. */
typedef struct ht_conv2d_params {
  int32_t stride[2], padding[2], dilation[2], kernel[2];
  int32_t groups, bias;
} ht_conv2d_params;

/* HT_LINEAR*: bias matters to _DIFF_WEIGHTS only; dst's type is that of the out spec. */
typedef struct ht_linear_params {
  int32_t bias;
} ht_linear_params;

/* HT_BATCH_NORM_{STATS,APPLY,DIFF_REDUCE,DIFF_APPLY} */
typedef struct ht_batch_norm_params {
  int32_t group; /* samples of a statistics group; 0 = the whole batch */
  int32_t relu, add, two;
  double eps;
  int64_t count; /* DIFF_APPLY: n of a full group, 0 = this operand's own */
} ht_batch_norm_params;

typedef struct ht_batch_norm_running_params {
  double momentum;
  const int64_t *counts; /* one a group */
  int64_t groups;
} ht_batch_norm_running_params;

/* HT_MAX_POOL2D*, HT_AVG_POOL2D* */
typedef struct ht_pool2d_params {
  int32_t stride[2], padding[2], dilation[2], kernel[2];
  int32_t train;         /* max */
  int32_t count_padding; /* avg */
} ht_pool2d_params;

/* HT_UNARY, HT_UNARY_DIFF */
typedef enum ht_unary_func {
  HT_RELU = 0,
  HT_SIGMOID,
  HT_TANH,
  HT_GELU,
  HT_GELU_TANH,
  HT_EXP,
  HT_LOG,
  HT_SQRT,
  HT_SQUARE,
  HT_NEG,
  HT_ABS
} ht_unary_func;
/* HT_BINARY */
typedef enum ht_binary_func { HT_ADD = 0, HT_SUB, HT_MUL, HT_DIV, HT_MAX, HT_MIN } ht_binary_func;
/* HT_REDUCE */
typedef enum ht_reduce_func { HT_SUM = 0, HT_MEAN, HT_MAXIMUM } ht_reduce_func;

/* HT_UNARY, HT_UNARY_DIFF, HT_BINARY */
typedef struct ht_elementwise_params {
  int32_t func;
} ht_elementwise_params;

typedef struct ht_fill_params {
  double value;
} ht_fill_params;

typedef struct ht_dropout_params {
  double p;
  uint32_t stream;
} ht_dropout_params;

/* HT_TRANSPOSE: axes = the permutation. HT_REDUCE: func and axes. HT_BROADCAST: axes. HT_CONCAT: axes[0].
 * HT_SLICE, HT_PAD: axes[0], start, size. */
typedef struct ht_move_params {
  int32_t func, num_axes;
  int32_t axes[HT_MAX_DIMS];
  int64_t start, size;
} ht_move_params;

/* HT_SOFTMAX_CROSS_ENTROPY, _DIFF */
typedef struct ht_loss_params {
  double label_smoothing;
  int32_t mixed; /* two labels a sample: second labels and shares follow the other inputs */
} ht_loss_params;

typedef struct ht_image_normalize_params {
  const float *mean, *std; /* one a channel */
  int32_t channels;
} ht_image_normalize_params;

typedef struct ht_segment {
  int64_t offset, length; /* elements */
  float weight_decay, lr_scale;
} ht_segment;

/* HT_SUM_SQUARES: chunk. HT_GRAD_CONTROL: max_norm. HT_SGD, HT_ADAMW: the rest. */
typedef struct ht_optim_params {
  int64_t chunk;
  double max_norm;
  float momentum, beta1, beta2, eps;
  int32_t nesterov;
  int32_t reserved;
  const ht_segment *segments;
  int64_t num_segments;
} ht_optim_params;

/* HT_REORDER, HT_RESHAPE, HT_SCALE, HT_GLOBAL_AVG_POOL, HT_GLOBAL_AVG_POOL_DIFF,
   HT_MOVING_AVERAGE take none: params NULL. */

/* --- objects ------------------------------------------------------------------------------------- */

typedef struct ht_device ht_device;
typedef struct ht_kernel ht_kernel;
typedef struct ht_program ht_program;
typedef struct ht_stream ht_stream;
typedef struct ht_event ht_event;

typedef struct ht_open_options {
  int32_t index;
  int32_t threads; /* 0 = all CPUs of the process */
} ht_open_options;

typedef struct ht_info {
  char model[128], isa[64];
  int32_t threads, fast_bf16;
  int64_t memory_bytes;
} ht_info;

typedef struct ht_alias {
  int32_t out, in;
} ht_alias;

/* What tells a device from all others of its kind, on any machine. */
typedef struct ht_identity {
  char uuid[64],
      bus_id[32];     /* "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "00000000:65:00.0"; "" where there is none */
  int64_t free_bytes; /* of its memory, when it was opened; 0: not known */
} ht_identity;

/* What a kernel wants; arrays are the library's, valid until kernel_free. */
typedef struct ht_kernel_desc {
  const ht_spec *in, *out;
  int32_t num_in, num_out;
  int64_t workspace;
  const ht_alias *inplace;
  int32_t num_inplace;
} ht_kernel_desc;

typedef enum ht_step_kind { HT_STEP_LAUNCH = 0, HT_STEP_RECORD = 1, HT_STEP_WAIT = 2 } ht_step_kind;

typedef struct ht_step {
  int32_t kind; /* ht_step_kind */
  int32_t reserved;
  ht_kernel *kernel; /* LAUNCH */
  void *const *in;   /* LAUNCH: device addresses, as many as the kernel has inputs */
  void *const *out;  /* LAUNCH */
  void *workspace;   /* LAUNCH: may be NULL where none is needed */
  ht_event *event;   /* RECORD, WAIT */
} ht_step;

/* What measure_peak measures, with all threads of the device. */
typedef enum ht_peak {
  HT_PEAK_F32_FLOPS = 1,  /* fused multiply-adds in registers, FLOP/s */
  HT_PEAK_BF16_FLOPS = 2, /* bf16 dot products with f32 sums; HT_UNSUPPORTED without the instruction */
  HT_PEAK_READ_BYTES = 3, /* reading memory far beyond the caches, bytes/s */
  HT_PEAK_COPY_BYTES = 4, /* copying, read + written bytes/s */
  HT_PEAK_WRITE_BYTES = 5,
  HT_PEAK_F16_FLOPS = 6, /* as bf16, of f16 */
  /* Matrix products of a library, FLOP/s: the check on loops that may not know the best instruction. HT_UNSUPPORTED where the
   * figure of the type is such a product already, or there is no library. */
  HT_PEAK_F32_PRODUCT_FLOPS = 7,
  HT_PEAK_BF16_PRODUCT_FLOPS = 8,
} ht_peak;

#define HT_MAX_MARKS 1024

typedef enum ht_activity_kind {
  HT_ACTIVITY_KERNEL = 0,
  HT_ACTIVITY_COPY = 1,
  HT_ACTIVITY_FILL = 2,
  HT_ACTIVITY_CALL = 3, /* of the vendor's library, by the host */
} ht_activity_kind;

/* What a device did, or was asked to do, when. */
typedef struct ht_activity {
  int32_t kind;              /* ht_activity_kind */
  int32_t step;              /* of program; -1: not known */
  const ht_program *program; /* that it was part of; NULL: of none, or not known. It may be freed by now */
  int64_t begin_ns, end_ns;  /* by the host's clock CLOCK_MONOTONIC */
  int64_t bytes;             /* COPY, FILL */
  uint32_t lane;             /* the device's number of the stream; CALL: of the host's thread */
  uint32_t reserved;
  const char *name; /* of the kernel or function, as the vendor calls it; "" of copies and fills */
} ht_activity;

typedef struct ht_api {
  uint32_t abi_version;
  uint32_t table_bytes; /* sizeof(ht_api) as the library was built */
  const char *kind;     /* "cpu" */
  const char *build;    /* versions of what is inside: "oneDNN 3.2.0, gomp" */

  ht_status (*open)(const ht_open_options *, ht_device **, ht_error *);
  void (*close)(ht_device *);
  void (*info)(const ht_device *, ht_info *);
  void (*memory)(const ht_device *, int64_t *allocated, int64_t *peak);
  void (*layout_name)(const ht_device *, uint32_t layout, char *name, size_t name_bytes);

  /* host != 0: page-locked host memory. At least 64-byte alignment. */
  ht_status (*alloc)(ht_device *, int64_t bytes, int32_t host, void **, ht_error *);
  void (*free)(ht_device *, void *, int64_t bytes, int32_t host);

  ht_status (*compile)(ht_device *, int32_t op, const void *params, size_t params_bytes, const ht_spec *in,
                       int32_t num_in, const ht_spec *out, int32_t num_out, ht_kernel **, ht_error *);
  void (*kernel_desc)(const ht_kernel *, ht_kernel_desc *);
  void (*kernel_free)(ht_kernel *);

  /* Copies the steps and their address lists. Kernels, events and memory must outlive the program. */
  ht_status (*program_create)(ht_device *, const ht_step *, int32_t num_steps, ht_program **, ht_error *);
  void (*program_free)(ht_program *);

  /* Not complete before the first recording; a run takes back the completion of every event that it will record. Waiting
   * longer than timeout_ns is HT_TIMEOUT; for what a failed run was to record, HT_DEVICE_FAILURE. */
  ht_status (*event_create)(ht_device *, ht_event **, ht_error *);
  int32_t (*event_done)(ht_event *);
  ht_status (*event_wait)(ht_event *, int64_t timeout_ns, ht_error *);
  void (*event_free)(ht_event *);

  ht_status (*stream_create)(ht_device *, ht_stream **, ht_error *);
  ht_status (*stream_run)(ht_stream *, ht_program *, ht_error *);
  /* as stream_run, then waits; elapsed_ns[i] += time of step i */
  ht_status (*stream_run_timed)(ht_stream *, ht_program *, int64_t *elapsed_ns, ht_error *);
  ht_status (*stream_copy)(ht_stream *, void *dst, const void *src, int64_t bytes, ht_error *);
  ht_status (*stream_record)(ht_stream *, ht_event *, ht_error *);
  ht_status (*stream_wait)(ht_stream *, ht_event *, ht_error *);
  ht_status (*stream_sync)(ht_stream *, ht_error *);
  void (*stream_free)(ht_stream *);

  ht_status (*measure_peak)(ht_device *, int32_t what, double seconds, double *per_second, ht_error *);

  /* Takes completion back, until the next recording or event_complete. Who waits already is not held up by it. */
  ht_status (*event_reset)(ht_event *, ht_error *);
  /* Completes the event from the host, on any thread: steps that wait for it go on. */
  ht_status (*event_complete)(ht_event *, ht_error *);

  /* For experiments with unequal devices. From the next run on launches take factor times as long, the device being idle for the
   * difference; 1 to HT_MAX_SLOWDOWN, 1 at first. Peaks that are measured shrink by the factor. Any thread. NULL: the device
   * cannot. */
  ht_status (*set_slowdown)(ht_device *, double factor, ht_error *);
  /* The factor, and how long launches have worked, and the device was idle for it, while it was above 1. */
  void (*slowdown)(const ht_device *, double *factor, int64_t *worked_ns, int64_t *idle_ns);

  /* How long programs on the stream have stood at steps that wait, in ns since it was created. NULL: the device does not tell. */
  int64_t (*stream_waited)(const ht_stream *);

  /* Of a device whose streams run behind the caller: moments in a stream, numbered from 0 to HT_MAX_MARKS - 1. A mark that is set again
   * is where it was set last. stream_between is the time from one to another, once the stream has passed both. NULL: streams run on
   * the calling thread, whose clock tells. */
  ht_status (*stream_mark)(ht_stream *, int32_t mark, ht_error *);
  ht_status (*stream_between)(ht_stream *, int32_t from, int32_t to, int64_t *ns, ht_error *);

  /* What the device does otherwise than it should, slower for instance, and why: for the log. "" where there is nothing to say. NULL:
   * there never is. */
  void (*notes)(const ht_device *, char *text, size_t text_bytes);

  /* How many devices this process sees; HT_UNAVAILABLE says why there is none. It opens none, and may be called in a process that
   * never does. NULL: one. */
  ht_status (*count)(int32_t *count, ht_error *);
  void (*identity)(const ht_device *, ht_identity *); /* NULL: all are alike */

  /* Has the device note what it does by its own clock, in graphs too: programs run as they do otherwise, where that needs new graphs the
   * first run makes them. HT_UNAVAILABLE says what is missing. activity_stop waits for all streams, and hands out what was noted since, in
   * no order; the list is valid until the next start, or until activity_stop is called with NULL for all but the device, which
   * gives its memory back and does nothing else. lost: what was noted and could not be kept. One at a time in a process. NULL: the
   * device cannot. */
  ht_status (*activity_start)(ht_device *, ht_error *);
  ht_status (*activity_stop)(ht_device *, const ht_activity **list, int64_t *count, int64_t *lost, ht_error *);

  /* What info would tell of a device that open could open, as far as that can be known without opening it, which on a GPU takes memory and
   * time; else open's error. NULL: only open tells. */
  ht_status (*describe)(int32_t index, ht_info *, ht_error *);
} ht_api;

/* The one export. Returns NULL if the library cannot serve this ABI version. */
const ht_api *ht_get_api(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif
