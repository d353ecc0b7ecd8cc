// requests.cc: one line per op, and the checks of all ops.
#include "requests.h"

#include "specs.h"

namespace hetero {

namespace {

// Requirements on every request of an op.
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
    {HT_SOFTMAX_CROSS_ENTROPY, "softmax_cross_entropy", sizeof(ht_loss_params), 2, 4, 3, 3},
    {HT_SOFTMAX_CROSS_ENTROPY_DIFF, "softmax_cross_entropy_diff", sizeof(ht_loss_params), 4, 6, 1, 1},
    {HT_IMAGE_NORMALIZE, "image_normalize", sizeof(ht_image_normalize_params), 1, 1, 1, 1},
    {HT_SUM_SQUARES, "sum_squares", sizeof(ht_optim_params), 1, 1, 1, 1},
    {HT_GRAD_CONTROL, "grad_control", sizeof(ht_optim_params), 2, 2, 1, 1},
    {HT_SGD, "sgd", sizeof(ht_optim_params), 4, 5, 1, 2},
    {HT_ADAMW, "adamw", sizeof(ht_optim_params), 6, 6, 3, 3},
    {HT_BATCH_NORM_MERGE, "batch_norm_merge", 0, 2, 2, 2, 2},
    {HT_MOVING_AVERAGE, "moving_average", 0, 4, 4, 1, 1},
    {HT_EMBEDDING, "embedding", 0, 2, 5, 1, 1},
    {HT_EMBEDDING_DIFF, "embedding_diff", sizeof(ht_embedding_params), 1, 3, 1, 1},
    {HT_LAYER_NORM, "layer_norm", sizeof(ht_layer_norm_params), 3, 4, 3, 4},
    {HT_LAYER_NORM_DIFF, "layer_norm_diff", sizeof(ht_layer_norm_params), 5, 6, 3, 3},
    {HT_BIAS_GELU, "bias_gelu", sizeof(ht_elementwise_params), 2, 2, 1, 1},
    {HT_BIAS_GELU_DIFF, "bias_gelu_diff", sizeof(ht_elementwise_params), 3, 3, 2, 2},
    {HT_ATTENTION, "attention", sizeof(ht_attention_params), 1, 6, 2, 2},
    {HT_ATTENTION_DIFF, "attention_diff", sizeof(ht_attention_params), 4, 9, 1, 3},
    {HT_ATTENTION_STEP, "attention_step", sizeof(ht_attention_params), 6, 6, 1, 1},
    {HT_LINEAR_CROSS_ENTROPY, "linear_cross_entropy", 0, 3, 4, 3, 3},
    {HT_LINEAR_CROSS_ENTROPY_DIFF, "linear_cross_entropy_diff", 0, 5, 6, 2, 3},
};
static_assert(sizeof(kOps) / sizeof(kOps[0]) == HT_OP_END - 1, "one line an op");

const OpInfo *op_info(int32_t op) { return op >= 1 && op < HT_OP_END ? &kOps[op - 1] : nullptr; }

ht_spec checked_spec(const ht_spec &given, bool output) {
  ht_spec s = given;
  if (s.dtype < HT_F32 || s.dtype > HT_OPAQUE)
    throw Invalid("element type: got " + std::to_string(s.dtype) + ", want " + std::to_string(HT_F32) + " to " +
                  std::to_string(HT_OPAQUE));
  if (s.ndim < 0 || s.ndim > HT_MAX_DIMS)
    throw Invalid("got " + std::to_string(s.ndim) + " dimensions, want at most " + std::to_string(HT_MAX_DIMS));
  if (s.dtype == HT_OPAQUE) {
    if (!output && s.bytes <= 0)
      throw Invalid("got an opaque tensor of unknown size, want the spec that the producing kernel returned");
    return s;
  }
  int64_t n = 1;
  for (int i = 0; i < s.ndim; i++)
    if (s.dims[i] < 1 || __builtin_mul_overflow(n, s.dims[i], &n) || n > INT64_MAX / 16)
      throw Invalid("dimensions: got " + describe(s) + ", want each at least 1 and fewer than 2^59 elements in total");
  if (s.layout == HT_LAYOUT_ANY) return s;
  int64_t bytes = bytes_in_memory(s);
  if (s.bytes != 0 && s.bytes != bytes)
    throw Invalid(describe(s) + ": got " + std::to_string(s.bytes) + " bytes, want " + std::to_string(bytes));
  s.bytes = bytes;
  return s;
}

Specs checked_specs(const char *side, const ht_spec *specs, int32_t count, int least, int most) {
  if (count < least || count > most || (count > 0 && !specs))
    throw Invalid("got " + std::to_string(count) + " " + side + "s, want " + std::to_string(least) + " to " +
                  std::to_string(most));
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

} // namespace

std::string op_name(int32_t op) {
  const OpInfo *info = op_info(op);
  return info ? info->name : "op " + std::to_string(op);
}

Request checked_request(int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in,
                        const ht_spec *out, int32_t num_out, int threads) {
  const OpInfo *info = op_info(op);
  if (!info) throw Unsupported("no such op");
  if (params_bytes != info->params_bytes || (params_bytes > 0 && !params))
    throw Invalid("got " + std::to_string(params_bytes) + " bytes of parameters, want " +
                  std::to_string(info->params_bytes));
  return {info->op, params, checked_specs("input", in, num_in, info->min_in, info->max_in),
          checked_specs("output", out, num_out, info->min_out, info->max_out), threads};
}

void check_kernel(const Kernel &k, const Request &r) {
  if (k.in.size() != r.in.size() || k.out.size() != r.out.size())
    throw std::logic_error("the kernel has " + std::to_string(k.in.size()) + " inputs and " +
                           std::to_string(k.out.size()) + " outputs, the request has " + std::to_string(r.in.size()) +
                           " and " + std::to_string(r.out.size()));
  for (const Specs *side : {&k.in, &k.out})
    for (const ht_spec &s : *side)
      if (s.layout == HT_LAYOUT_ANY || s.bytes <= 0)
        throw std::logic_error("the kernel did not set the layout or size of an operand: " + describe(s));
  for (size_t i = 0; i < k.in.size(); i++)
    if (!same_dims(k.in[i], r.in[i]) || k.in[i].dtype != r.in[i].dtype)
      throw std::logic_error("the kernel changed the shape or type of input " + std::to_string(i));
  for (size_t i = 0; i < k.out.size(); i++)
    if (r.out[i].layout != HT_LAYOUT_ANY && r.out[i].dtype != HT_OPAQUE && k.out[i].layout != r.out[i].layout)
      throw std::logic_error("the kernel changed the layout of output " + std::to_string(i));
}

} // namespace hetero
