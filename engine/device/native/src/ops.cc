// ops.cc: the table from op numbers to factories.
#include "ops.h"

namespace hetero {

Factory factory_of(ht_op op) {
  switch (op) {
  case HT_CONV2D: return make_conv2d;
  case HT_CONV2D_DIFF_SRC: return make_conv2d_diff_src;
  case HT_CONV2D_DIFF_WEIGHTS: return make_conv2d_diff_weights;
  case HT_LINEAR: return make_linear;
  case HT_LINEAR_DIFF_SRC: return make_linear_diff_src;
  case HT_LINEAR_DIFF_WEIGHTS: return make_linear_diff_weights;
  case HT_REORDER: return make_reorder;
  case HT_BATCH_NORM_STATS: return make_batch_norm_stats;
  case HT_BATCH_NORM_MERGE: return make_batch_norm_merge;
  case HT_BATCH_NORM_APPLY: return make_batch_norm_apply;
  case HT_BATCH_NORM_DIFF_REDUCE: return make_batch_norm_diff_reduce;
  case HT_BATCH_NORM_DIFF_APPLY: return make_batch_norm_diff_apply;
  case HT_BATCH_NORM_RUNNING: return make_batch_norm_running;
  case HT_MAX_POOL2D: return make_max_pool2d;
  case HT_MAX_POOL2D_DIFF: return make_max_pool2d_diff;
  case HT_AVG_POOL2D: return make_avg_pool2d;
  case HT_AVG_POOL2D_DIFF: return make_avg_pool2d_diff;
  case HT_GLOBAL_AVG_POOL: return make_global_avg_pool;
  case HT_GLOBAL_AVG_POOL_DIFF: return make_global_avg_pool_diff;
  case HT_UNARY: return make_unary;
  case HT_UNARY_DIFF: return make_unary_diff;
  case HT_BINARY: return make_binary;
  case HT_SCALE: return make_scale;
  case HT_FILL: return make_fill;
  case HT_DROPOUT: return make_dropout;
  case HT_TRANSPOSE: return make_transpose;
  case HT_RESHAPE: return make_reshape;
  case HT_CONCAT: return make_concat;
  case HT_SLICE: return make_slice;
  case HT_PAD: return make_pad;
  case HT_REDUCE: return make_reduce;
  case HT_BROADCAST: return make_broadcast;
  case HT_SOFTMAX_CROSS_ENTROPY: return make_softmax_cross_entropy;
  case HT_SOFTMAX_CROSS_ENTROPY_DIFF: return make_softmax_cross_entropy_diff;
  case HT_IMAGE_NORMALIZE: return make_image_normalize;
  case HT_SUM_SQUARES: return make_sum_squares;
  case HT_GRAD_CONTROL: return make_grad_control;
  case HT_SGD: return make_sgd;
  case HT_ADAMW: return make_adamw;
  case HT_MOVING_AVERAGE: return make_moving_average;
  case HT_EMBEDDING: return make_embedding;
  case HT_EMBEDDING_DIFF: return make_embedding_diff;
  case HT_LAYER_NORM: return make_layer_norm;
  case HT_LAYER_NORM_DIFF: return make_layer_norm_diff;
  case HT_BIAS_GELU: return make_bias_gelu;
  case HT_BIAS_GELU_DIFF: return make_bias_gelu_diff;
  case HT_ATTENTION: return make_attention;
  case HT_ATTENTION_DIFF: return make_attention_diff;
  case HT_ATTENTION_STEP: return make_attention_step;
  case HT_LINEAR_CROSS_ENTROPY: return make_linear_cross_entropy;
  case HT_LINEAR_CROSS_ENTROPY_DIFF: return make_linear_cross_entropy_diff;
  case HT_OP_END: break;
  }
  throw Unsupported("no such op");
}

} // namespace hetero
