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
  default: return nullptr;
  }
}

} // namespace hetero
