// loss_simd.h: softmax cross-entropy of one sample, logits x (C), f32 arithmetic.
#pragma once

#include "elementwise_simd.h"

namespace hetero {
namespace {

constexpr int64_t kLossTile = 4096; // classes whose exponentials are summed in f32; the sums of tiles are added in f64

// Returns the number of elements of x[0..n) that are above limit, or, with or_equal, at least limit.
template <bool or_equal, class T> SIMD_INLINE int64_t count_above(int64_t n, const T *x, float limit) {
  int64_t count = 0;
  const F32 l = all(limit);
  each_vector(n, [&](int64_t i, auto full, int lanes) {
    const F32 v = load_row<full.value>(x + i, lanes);
    count += __builtin_popcount(bits((or_equal ? v >= l : v > l) & first_lanes(lanes)));
  });
  return count;
}

template <class T> LossTable::Row loss_row(int64_t classes, const void *x_, int64_t label) {
  const T *x = static_cast<const T *>(x_);
  F32 most = all(-INFINITY);
  each_vector(classes, [&](int64_t i, auto full, int lanes) {
    const F32 v = load_row<full.value>(x + i, lanes);
    most = max(most, full.value ? v : select(first_lanes(lanes), v, most));
  });
  LossTable::Row row{max_of(most), 0, 0, 0};
  const F32 largest = all(row.largest);
  for (int64_t from = 0; from < classes; from += kLossTile) {
    F32 sum_exp = zero(), sum = zero();
    each_vector(classes - from < kLossTile ? classes - from : kLossTile, [&](int64_t i, auto full, int lanes) {
      const F32 d = load_row<full.value>(x + from + i, lanes) - largest, e = exp(d);
      sum = sum + (full.value ? d : select(first_lanes(lanes), d, zero()));
      sum_exp = sum_exp + (full.value ? e : select(first_lanes(lanes), e, zero()));
    });
    row.sum_exp += sum_of(sum_exp);
    row.sum += sum_of(sum);
  }
  if (label < 0) return row;
  const float own = to_f32(x[label]);
  row.higher = count_above<true>(label, x, own) + count_above<false>(classes - label - 1, x + label + 1, own);
  return row;
}

template <class T>
void loss_diff(int64_t classes, const void *x_, const LossTable::Target &target, float lse, float scale, void *diff_) {
  const T *x = static_cast<const T *>(x_);
  T *diff = static_cast<T *>(diff_);
  const F32 vlse = all(lse), vbase = all(target.base), vscale = all(scale);
  const auto at = [&](int64_t label, float hot) { // reads x before the loop, because diff may be the same memory as x
    return (exp(all(to_f32(x[label])) - vlse) - all(target.base + hot)) * vscale;
  };
  const F32 first = at(target.label, target.hot), second = at(target.second, target.second_hot);
  each_vector(classes, [&](int64_t i, auto full, int lanes) {
    const F32 softmax = exp(load_row<full.value>(x + i, lanes) - vlse);
    store_row<full.value>(diff + i, (softmax - vbase) * vscale, lanes);
  });
  store_first(diff + target.second, second, 1);
  store_first(diff + target.label, first, 1);
}

constexpr LossTable loss_table() { return {{loss_row<float>, loss_row<Bf16>}, {loss_diff<float>, loss_diff<Bf16>}}; }

} // namespace
} // namespace hetero
