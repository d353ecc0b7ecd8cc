/* hetero_device.h: the whole C ABI between the engine (Go) and a native device library.
 *
 * A library exports ONE function, ht_get_api. It returns a table of functions, grouped by the object that they use:
 *
 *   device    opens a device and describes it
 *   memory    device memory and page-locked host memory
 *   kernel    one op, compiled for fixed operands
 *   event     a point in time that streams and the host wait for
 *   program   a list of launches, event records and event waits
 *   stream    runs programs and copies in order
 *
 * The table also has optional extensions. An extension is NULL if the library does not provide it:
 *
 *   presence  counts, describes and identifies devices
 *   peaks     measures FLOP/s and bytes/s
 *   marks     times work on streams that run asynchronously
 *   activity  records what the device executes, with its own clock
 *   slowdown  makes the device slower, for experiments with unequal devices
 *
 * HT_ABI_VERSION increases with every change of this file that affects compiled libraries.
 *
 * Rules for a library:
 *   - every call that can fail returns ht_status and, if not HT_OK, fills the caller's ht_error, which may be NULL;
 *   - no exception, exit or abort crosses this boundary, and no signal handler is installed;
 *   - the library reads the strings, parameters, specs and lists of a call only during this call;
 *   - returned strings stay valid as long as the library is loaded;
 *   - calls on different objects may run on different threads at the same time. Only one thread at a time uses an
 *     object, unless the object's group states otherwise;
 *   - the caller frees an object only after all objects that were created from it.
 *
 * Package engine/device documents the ops and their operands. The parameter structs below have the fields of the Go
 * types: label_smoothing is LabelSmoothing, and num_axes is the length of Axes. The engine finds the fields by these
 * names.
 */
#ifndef HETERO_DEVICE_H
#define HETERO_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HT_ABI_VERSION 7
#define HT_MAX_DIMS 6
#define HT_MAX_OPERANDS 16

typedef enum ht_status {
  HT_OK = 0,
  HT_UNSUPPORTED = 1, /* no kernel for this op: the planner decomposes it */
  HT_INVALID = 2,     /* wrong argument */
  HT_OUT_OF_MEMORY = 3,
  HT_DEVICE_FAILURE = 4,
  HT_TIMEOUT = 5,
  HT_UNAVAILABLE = 6, /* no such device on this machine */
  HT_ABSENT = 7,      /* like HT_UNAVAILABLE, but not a fault: hardware is absent or hidden, as text states */
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
  int64_t bytes; /* size in memory with padding; 0 in a request: the library determines it */
} ht_spec;

/* --- ops ----------------------------------------------------------------------------------------- */

/* The list of all ops. The op numbers, the factories and checks of the libraries, and the conversion of Go's ops are
 * generated from this list. Its columns are:
 *
 *   - the enumerator, without HT_
 *   - the kind of the op in package device
 *   - the parameter struct
 *   - minimum and maximum number of inputs
 *   - minimum and maximum number of outputs
 *
 * The order is part of the ABI: append new ops at the end. */
/* clang-format off */
#define HT_OPS(OP) \
  OP(CONV2D,                     conv2d,                     ht_conv2d_params,             2, 3, 1, 1) \
  OP(CONV2D_DIFF_SRC,            conv2d_diff_src,            ht_conv2d_params,             2, 2, 1, 1) \
  OP(CONV2D_DIFF_WEIGHTS,        conv2d_diff_weights,        ht_conv2d_params,             2, 2, 1, 2) \
  OP(LINEAR,                     linear,                     ht_linear_params,             2, 3, 1, 1) \
  OP(LINEAR_DIFF_SRC,            linear_diff_src,            ht_linear_params,             2, 2, 1, 1) \
  OP(LINEAR_DIFF_WEIGHTS,        linear_diff_weights,        ht_linear_params,             2, 2, 1, 2) \
  OP(BATCH_NORM_STATS,           batch_norm_stats,           ht_batch_norm_params,         1, 1, 2, 2) \
  OP(BATCH_NORM_APPLY,           batch_norm_apply,           ht_batch_norm_params,         5, 6, 1, 2) \
  OP(BATCH_NORM_DIFF_REDUCE,     batch_norm_diff_reduce,     ht_batch_norm_params,         6, 8, 2, 3) \
  OP(BATCH_NORM_DIFF_APPLY,      batch_norm_diff_apply,      ht_batch_norm_params,         8, 8, 1, 1) \
  OP(BATCH_NORM_RUNNING,         batch_norm_running,         ht_batch_norm_running_params, 4, 4, 2, 2) \
  OP(MAX_POOL2D,                 max_pool2d,                 ht_pool2d_params,             1, 1, 1, 2) \
  OP(MAX_POOL2D_DIFF,            max_pool2d_diff,            ht_pool2d_params,             2, 2, 1, 1) \
  OP(AVG_POOL2D,                 avg_pool2d,                 ht_pool2d_params,             1, 1, 1, 1) \
  OP(AVG_POOL2D_DIFF,            avg_pool2d_diff,            ht_pool2d_params,             1, 1, 1, 1) \
  OP(GLOBAL_AVG_POOL,            global_avg_pool,            ht_no_params,                 1, 1, 1, 1) \
  OP(GLOBAL_AVG_POOL_DIFF,       global_avg_pool_diff,       ht_no_params,                 1, 1, 1, 1) \
  OP(UNARY,                      unary,                      ht_elementwise_params,        1, 1, 1, 1) \
  OP(UNARY_DIFF,                 unary_diff,                 ht_elementwise_params,        2, 2, 1, 1) \
  OP(BINARY,                     binary,                     ht_elementwise_params,        2, 2, 1, 1) \
  OP(SCALE,                      scale,                      ht_no_params,                 2, 2, 1, 1) \
  OP(FILL,                       fill,                       ht_fill_params,               0, 0, 1, 1) \
  OP(DROPOUT,                    dropout,                    ht_dropout_params,            3, 3, 1, 1) \
  OP(REORDER,                    reorder,                    ht_no_params,                 1, 1, 1, 1) \
  OP(TRANSPOSE,                  transpose,                  ht_move_params,               1, 1, 1, 1) \
  OP(RESHAPE,                    reshape,                    ht_no_params,                 1, 1, 1, 1) \
  OP(CONCAT,                     concat,                     ht_move_params,               1, HT_MAX_OPERANDS, 1, 1) \
  OP(SLICE,                      slice,                      ht_move_params,               1, 1, 1, 1) \
  OP(PAD,                        pad,                        ht_move_params,               1, 1, 1, 1) \
  OP(REDUCE,                     reduce,                     ht_move_params,               1, 1, 1, 1) \
  OP(BROADCAST,                  broadcast,                  ht_move_params,               1, 1, 1, 1) \
  OP(SOFTMAX_CROSS_ENTROPY,      softmax_cross_entropy,      ht_loss_params,               2, 4, 3, 3) \
  OP(SOFTMAX_CROSS_ENTROPY_DIFF, softmax_cross_entropy_diff, ht_loss_params,               4, 6, 1, 1) \
  OP(IMAGE_NORMALIZE,            image_normalize,            ht_image_normalize_params,    1, 1, 1, 1) \
  OP(SUM_SQUARES,                sum_squares,                ht_optim_params,              1, 1, 1, 1) \
  OP(GRAD_CONTROL,               grad_control,               ht_optim_params,              2, 2, 1, 1) \
  OP(SGD,                        sgd,                        ht_optim_params,              4, 5, 1, 2) \
  OP(ADAMW,                      adamw,                      ht_optim_params,              6, 6, 3, 3) \
  OP(BATCH_NORM_MERGE,           batch_norm_merge,           ht_no_params,                 2, 2, 2, 2) \
  OP(MOVING_AVERAGE,             moving_average,             ht_no_params,                 4, 4, 1, 1) \
  OP(EMBEDDING,                  embedding,                  ht_no_params,                 2, 5, 1, 1) \
  OP(EMBEDDING_DIFF,             embedding_diff,             ht_embedding_params,          1, 3, 1, 1) \
  OP(LAYER_NORM,                 layer_norm,                 ht_layer_norm_params,         3, 4, 3, 4) \
  OP(LAYER_NORM_DIFF,            layer_norm_diff,            ht_layer_norm_params,         5, 6, 3, 3) \
  OP(BIAS_GELU,                  bias_gelu,                  ht_elementwise_params,        2, 2, 1, 1) \
  OP(BIAS_GELU_DIFF,             bias_gelu_diff,             ht_elementwise_params,        3, 3, 2, 2) \
  OP(ATTENTION,                  attention,                  ht_attention_params,          1, 6, 2, 2) \
  OP(ATTENTION_DIFF,             attention_diff,             ht_attention_params,          4, 9, 1, 3) \
  OP(ATTENTION_STEP,             attention_step,             ht_attention_params,          6, 6, 1, 1) \
  OP(LINEAR_CROSS_ENTROPY,       linear_cross_entropy,       ht_no_params,                 3, 4, 3, 3) \
  OP(LINEAR_CROSS_ENTROPY_DIFF,  linear_cross_entropy_diff,  ht_no_params,                 5, 6, 2, 3) \
  OP(LINEAR_CROSS_ENTROPY_BOTH,  linear_cross_entropy_both,  ht_no_params,                 4, 5, 4, 5)
/* clang-format on */

typedef enum ht_op {
  HT_OP_NONE = 0,
#define HT_OP(NUMBER, ...) HT_##NUMBER,
  HT_OPS(HT_OP) HT_OP_END /* one past the last */
} ht_op;
#undef HT_OP

/* HT_CONV2D*: only _DIFF_WEIGHTS uses kernel and bias. */
typedef struct ht_conv2d_params {
  int32_t stride[2], padding[2], dilation[2], kernel[2];
  int32_t groups, bias;
} ht_conv2d_params;

/* HT_LINEAR*: only _DIFF_WEIGHTS uses bias. The spec of the output contains the element type of dst. */
typedef struct ht_linear_params {
  int32_t bias;
} ht_linear_params;

/* HT_BATCH_NORM_{STATS,APPLY,DIFF_REDUCE,DIFF_APPLY} */
typedef struct ht_batch_norm_params {
  int32_t group; /* number of samples in a statistics group; 0 = the whole batch */
  int32_t relu, add, two;
  double eps;
  int64_t count; /* DIFF_APPLY: values per channel in a full group of all ranks; 0 = computed from the shape of x */
} ht_batch_norm_params;

typedef struct ht_batch_norm_running_params {
  double momentum;
  const int64_t *counts; /* one count per group */
  int64_t groups;
} ht_batch_norm_running_params;

/* HT_MAX_POOL2D*, HT_AVG_POOL2D* */
typedef struct ht_pool2d_params {
  int32_t stride[2], padding[2], dilation[2], kernel[2];
  int32_t train;         /* max pooling only */
  int32_t count_padding; /* average pooling only */
} ht_pool2d_params;

/* The values of device.UnaryFunc, BinaryFunc and ReduceFunc. */
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
typedef enum ht_binary_func { HT_ADD = 0, HT_SUB, HT_MUL, HT_DIV, HT_MAX, HT_MIN } ht_binary_func;
typedef enum ht_reduce_func { HT_SUM = 0, HT_MEAN, HT_MAXIMUM } ht_reduce_func;

/* HT_UNARY, HT_UNARY_DIFF, HT_BINARY, HT_BIAS_GELU, HT_BIAS_GELU_DIFF */
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

/* The fields that each op uses:
 *
 *   HT_TRANSPOSE         axes: the permutation
 *   HT_REDUCE            func, axes
 *   HT_BROADCAST         axes
 *   HT_CONCAT            axes[0]
 *   HT_SLICE, HT_PAD     axes[0], start, size */
typedef struct ht_move_params {
  int32_t func, num_axes;
  int32_t axes[HT_MAX_DIMS];
  int64_t start, size;
} ht_move_params;

/* HT_SOFTMAX_CROSS_ENTROPY, _DIFF */
typedef struct ht_loss_params {
  double label_smoothing;
  int32_t mixed; /* 1: two labels per sample; the second labels and the lambdas are then the last inputs */
} ht_loss_params;

typedef struct ht_image_normalize_params {
  const float *mean, *std; /* one value per channel */
  int32_t channels;
} ht_image_normalize_params;

typedef struct ht_segment {
  int64_t offset, length; /* elements */
  float weight_decay, lr_scale;
} ht_segment;

/* The fields that each op uses:
 *
 *   HT_SUM_SQUARES       chunk
 *   HT_GRAD_CONTROL      max_norm
 *   HT_SGD, HT_ADAMW     all other fields */
typedef struct ht_optim_params {
  int64_t chunk;
  double max_norm;
  float momentum, beta1, beta2, eps;
  int32_t nesterov;
  int32_t reserved;
  const ht_segment *segments;
  int64_t num_segments;
} ht_optim_params;

/* HT_EMBEDDING_DIFF */
typedef struct ht_embedding_params {
  int64_t rows;       /* number of rows of the table */
  int32_t positions;  /* 1: row t belongs to position t, and the op has no ids */
  int32_t accumulate; /* 1: the result is added to the last input, in place */
} ht_embedding_params;

/* HT_LAYER_NORM uses eps and add. HT_LAYER_NORM_DIFF uses plus. */
typedef struct ht_layer_norm_params {
  double eps;
  int32_t add, plus;
} ht_layer_norm_params;

/* HT_ATTENTION, HT_ATTENTION_DIFF and HT_ATTENTION_STEP. The last one uses only heads and kv_heads. */
typedef struct ht_attention_params {
  double p; /* probability of dropout */
  uint32_t stream;
  int32_t heads, packed, causal, lengths;
  int32_t kv_heads; /* number of key/value heads, a divisor of heads */
} ht_attention_params;

/* For ops without parameters: params is NULL. */
typedef struct ht_no_params {
  int32_t reserved;
} ht_no_params;

/* --- objects ------------------------------------------------------------------------------------- */

typedef struct ht_device ht_device;
typedef struct ht_kernel ht_kernel;
typedef struct ht_event ht_event;
typedef struct ht_program ht_program;
typedef struct ht_stream ht_stream;

/* --- device -------------------------------------------------------------------------------------- */

typedef struct ht_open_options {
  int32_t index;
  int32_t threads; /* 0 = one for each core that the process may use */
} ht_open_options;

typedef struct ht_info {
  char model[128], isa[64];
  int32_t threads, fast_bf16;
  int64_t memory_bytes;
} ht_info;

/* close is the last call on a device. layout_name writes at most name_bytes bytes, including the NUL. */
typedef struct ht_device_calls {
  ht_status (*open)(const ht_open_options *, ht_device **, ht_error *);
  void (*close)(ht_device *);
  void (*info)(const ht_device *, ht_info *);
  void (*layout_name)(const ht_device *, uint32_t layout, char *name, size_t name_bytes);
  /* Writes a description of unusual behaviour and its cause, for the log: for example, the use of a slower code path.
   * Writes "" if there is none. The entry is NULL if the library has no notes. */
  void (*notes)(const ht_device *, char *text, size_t text_bytes);
} ht_device_calls;

/* --- memory -------------------------------------------------------------------------------------- */

/* host != 0 means page-locked host memory. Addresses are aligned to at least 64 bytes. The caller passes the same bytes
 * and host to free as to alloc. Any thread may call these functions. */
typedef struct ht_memory_calls {
  ht_status (*alloc)(ht_device *, int64_t bytes, int32_t host, void **, ht_error *);
  void (*free)(ht_device *, void *, int64_t bytes, int32_t host);
  /* Returns the allocated device memory and its peak, in bytes. Host memory does not count. */
  void (*used)(const ht_device *, int64_t *allocated, int64_t *peak);
} ht_memory_calls;

/* --- kernel -------------------------------------------------------------------------------------- */

typedef struct ht_alias {
  int32_t out, in;
} ht_alias;

/* The operands that a kernel requires. The arrays belong to the library and are valid until the kernel is freed. */
typedef struct ht_kernel_desc {
  const ht_spec *in, *out;
  int32_t num_in, num_out;
  int64_t workspace; /* bytes */
  const ht_alias *inplace;
  int32_t num_inplace;
} ht_kernel_desc;

/* compile returns HT_UNSUPPORTED if the library has no kernel for the op with these operands. */
typedef struct ht_kernel_calls {
  ht_status (*compile)(ht_device *, int32_t op, const void *params, size_t params_bytes, const ht_spec *in,
                       int32_t num_in, const ht_spec *out, int32_t num_out, ht_kernel **, ht_error *);
  void (*desc)(const ht_kernel *, ht_kernel_desc *);
  void (*free)(ht_kernel *);
} ht_kernel_calls;

/* --- event --------------------------------------------------------------------------------------- */

/* An event is pending until it is first recorded or completed. When a run starts, the events that its program records
 * become pending. Any thread may call done, wait, reset and complete. */
typedef struct ht_event_calls {
  ht_status (*create)(ht_device *, ht_event **, ht_error *);
  int32_t (*done)(ht_event *);
  /* Waits at most timeout_ns, or without limit if timeout_ns < 0. Returns HT_TIMEOUT after this time, and
   * HT_DEVICE_FAILURE if the run that should have recorded the event failed. */
  ht_status (*wait)(ht_event *, int64_t timeout_ns, ht_error *);
  /* Makes the event pending, until the next record or complete. Waits that began earlier are not affected. */
  ht_status (*reset)(ht_event *, ht_error *);
  /* Completes the event from the host. Steps that wait for the event continue. */
  ht_status (*complete)(ht_event *, ht_error *);
  void (*free)(ht_event *);
} ht_event_calls;

/* --- program ------------------------------------------------------------------------------------- */

typedef enum ht_step_kind { HT_STEP_LAUNCH = 0, HT_STEP_RECORD = 1, HT_STEP_WAIT = 2 } ht_step_kind;

typedef struct ht_step {
  int32_t kind; /* ht_step_kind */
  int32_t reserved;
  ht_kernel *kernel; /* LAUNCH */
  void *const *in;   /* LAUNCH: device addresses, one per input of the kernel */
  void *const *out;  /* LAUNCH: device addresses, one per output of the kernel */
  void *workspace;   /* LAUNCH: may be NULL if the kernel needs none */
  ht_event *event;   /* RECORD, WAIT */
} ht_step;

/* create copies the steps and their address lists. Kernels, events and memory must outlive the program. */
typedef struct ht_program_calls {
  ht_status (*create)(ht_device *, const ht_step *, int32_t num_steps, ht_program **, ht_error *);
  void (*free)(ht_program *);
} ht_program_calls;

/* --- stream -------------------------------------------------------------------------------------- */

/* Work on a stream runs in the order of the calls. run, copy, record and wait may return before the work is done. */
typedef struct ht_stream_calls {
  ht_status (*create)(ht_device *, ht_stream **, ht_error *);
  ht_status (*run)(ht_stream *, ht_program *, ht_error *);
  /* Runs the program, waits for its end, and adds the time of step i to elapsed_ns[i]. */
  ht_status (*run_timed)(ht_stream *, ht_program *, int64_t *elapsed_ns, ht_error *);
  ht_status (*copy)(ht_stream *, void *dst, const void *src, int64_t bytes, ht_error *);
  ht_status (*record)(ht_stream *, ht_event *, ht_error *);
  ht_status (*wait)(ht_stream *, ht_event *, ht_error *);
  ht_status (*sync)(ht_stream *, ht_error *);
  /* Returns the time for which WAIT steps have blocked programs since the stream was created, in ns. The entry is NULL
   * if the library cannot measure this time. */
  int64_t (*waited)(const ht_stream *);
  void (*free)(ht_stream *);
} ht_stream_calls;

/* --- optional extensions ------------------------------------------------------------------------- */

/* Identifies a device among all devices of its kind, on any machine. */
typedef struct ht_identity {
  char uuid[64], bus_id[32]; /* "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "00000000:65:00.0"; "" if there is none */
  int64_t free_bytes;        /* free device memory when the device was opened; 0: unknown */
} ht_identity;

/* A library without this extension has one device per machine. */
typedef struct ht_presence_calls {
  /* Returns the number of devices that this process sees, without opening one. If there is none, it returns
   * HT_UNAVAILABLE or HT_ABSENT with the reason. */
  ht_status (*count)(int32_t *count, ht_error *);
  /* Returns the info of a device without opening it, or the error that open would return. Unknown values stay zero. */
  ht_status (*describe)(int32_t index, ht_info *, ht_error *);
  void (*identity)(const ht_device *, ht_identity *);
} ht_presence_calls;

typedef enum ht_peak {
  HT_PEAK_F32_FLOPS = 1, /* fused multiply-adds in registers, FLOP/s */
  HT_PEAK_BF16_FLOPS =
      2, /* bf16 dot products with f32 sums, FLOP/s; HT_UNSUPPORTED if the device lacks the instruction */
  HT_PEAK_READ_BYTES = 3, /* reading memory far larger than the caches, bytes/s */
  HT_PEAK_COPY_BYTES = 4, /* copying such memory: bytes read plus bytes written, per s */
  HT_PEAK_WRITE_BYTES = 5,
  HT_PEAK_F16_FLOPS = 6, /* like HT_PEAK_BF16_FLOPS, for f16 */
  /* FLOP/s of the vendor library's matrix products. They check the figures above, whose loops may not use the best
   * instruction. The result is HT_UNSUPPORTED without such a library, or if a figure above already measures such a
   * product. */
  HT_PEAK_F32_PRODUCT_FLOPS = 7,
  HT_PEAK_BF16_PRODUCT_FLOPS = 8,
} ht_peak;

typedef struct ht_peak_calls {
  /* Measures with all threads of the device for about the given seconds. */
  ht_status (*measure)(ht_device *, int32_t peak, double seconds, double *per_second, ht_error *);
} ht_peak_calls;

#define HT_MAX_MARKS 1024

/* A library has this extension if and only if its streams run asynchronously; otherwise the caller's clock can time the
 * work. Marks are numbered from 0 to HT_MAX_MARKS - 1 on each stream. Setting a mark again moves the mark. */
typedef struct ht_mark_calls {
  ht_status (*set)(ht_stream *, int32_t mark, ht_error *);
  /* Returns the time between two marks, in ns. The stream must have passed both marks. */
  ht_status (*between)(ht_stream *, int32_t from, int32_t to, int64_t *ns, ht_error *);
} ht_mark_calls;

typedef enum ht_activity_kind {
  HT_ACTIVITY_KERNEL = 0,
  HT_ACTIVITY_COPY = 1,
  HT_ACTIVITY_FILL = 2,
  HT_ACTIVITY_CALL = 3, /* a call of the vendor's library by the host */
} ht_activity_kind;

/* A kernel, copy or fill that a device executed, or a call of the host. */
typedef struct ht_activity {
  int32_t kind;              /* ht_activity_kind */
  int32_t step;              /* step of program; -1: unknown */
  const ht_program *program; /* NULL: none or unknown. The program may have been freed since */
  int64_t begin_ns, end_ns;  /* CLOCK_MONOTONIC of the host */
  int64_t bytes;             /* COPY, FILL */
  uint32_t lane;             /* number of the stream on the device; CALL: number of the host's thread */
  uint32_t reserved;
  const char *name; /* the vendor's name of the kernel or function; "" for copies and fills */
} ht_activity;

/* A process can have one recording at a time. Recording does not change how programs run. */
typedef struct ht_activity_calls {
  /* The text of HT_UNAVAILABLE states what is missing. */
  ht_status (*start)(ht_device *, ht_error *);
  /* Waits for all streams and returns the activities, in no particular order. The list is valid until the next start or
   * release. lost is the number of activities that could not be stored. */
  ht_status (*stop)(ht_device *, const ht_activity **list, int64_t *count, int64_t *lost, ht_error *);
  /* Frees the memory of the list. */
  void (*release)(ht_device *);
} ht_activity_calls;

#define HT_MAX_SLOWDOWN 1000

typedef struct ht_slowdown {
  double factor;
  int64_t worked_ns, idle_ns; /* time of launches with factor > 1; idle time that was added to these launches */
} ht_slowdown;

/* Any thread may call these functions. */
typedef struct ht_slowdown_calls {
  /* Sets the slowdown from the next run on: a launch takes factor times as long, and the device idles for the
   * difference. factor is in 1 … HT_MAX_SLOWDOWN, and 1 initially. Measured peaks are divided by factor. */
  ht_status (*set)(ht_device *, double factor, ht_error *);
  void (*get)(const ht_device *, ht_slowdown *);
} ht_slowdown_calls;

/* --- the table ----------------------------------------------------------------------------------- */

typedef struct ht_api {
  uint32_t abi_version; /* HT_ABI_VERSION of the sources that the library was built from */
  uint32_t table_bytes; /* sizeof(ht_api) in these sources */
  const char *kind;     /* kind of the library's devices: "cpu" */
  const char *build;    /* versions of the library's parts: "oneDNN 3.2.0, OpenMP" */

  ht_device_calls device;
  ht_memory_calls memory;
  ht_kernel_calls kernel;
  ht_event_calls event;
  ht_program_calls program;
  ht_stream_calls stream;

  const ht_presence_calls *presence;
  const ht_peak_calls *peaks;
  const ht_mark_calls *marks;
  const ht_activity_calls *activity;
  const ht_slowdown_calls *slowdown;
} ht_api;

/* The only export. Returns NULL if the library does not support this ABI version. */
const ht_api *ht_get_api(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif
