// ops.cc: the table from op numbers to factories. An op that is not here is HT_UNSUPPORTED.
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
  case HT_BATCH_NORM_APPLY: return make_batch_norm_apply;
  case HT_BATCH_NORM_DIFF_REDUCE: return make_batch_norm_diff_reduce;
  case HT_BATCH_NORM_DIFF_APPLY: return make_batch_norm_diff_apply;
  case HT_BATCH_NORM_RUNNING: return make_batch_norm_running;
  default: return nullptr;
  }
}

} // namespace hetero
