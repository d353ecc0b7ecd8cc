// batchnorm_simd.h: the loops that batchnorm_table.h lists, on vectors of sixteen lanes.
//
// Sums of f32 are taken over tiles of kTileRows rows in four chains and added to f64 sums, so an error does not grow
// with the batch. Moments are taken about a pivot, the mean so far: what cancels is then never larger than what
// the deviation of the tile's mean from it adds to the variance anyway.
#pragma once

#include "batchnorm_table.h"
#include "rows_simd.h"

namespace hetero {
namespace {

constexpr int64_t kFirstTileRows = 64; // read twice: there is no mean yet to take as the pivot

template <bool full, bool past_caches, class T> SIMD_INLINE void put_row(T *a, F32 v, int lanes) {
  if (full && past_caches)
    stream(a, v);
  else
    store_row<full>(a, v, lanes);
}

// --- statistics ----------------------------------------------------------------------------------

// first = sum(x - pivot), second = sum((x - pivot)²) over rows [from, to).
template <class T>
SIMD_INLINE void pivoted_sums(const Rows &r, int64_t unit, int64_t from, int64_t to, const T *x, const float *pivot,
                              double *first, double *second) {
  const F32 p = load(pivot);
  Chains s, q;
  each_row(r, unit, from, to, [&](int chain, int64_t at, int64_t, auto full, int lanes) {
    F32 d = load_row<full.value>(x + at, lanes) - p;
    if (!full.value) d = select(first_lanes(lanes), d, zero());
    s.c[chain] = s.c[chain] + d;
    q.c[chain] = q.c[chain] + d * d;
  });
  fold(r.unit_channels, s.total(), first);
  fold(r.unit_channels, q.total(), second);
}

template <class T>
void batch_norm_stats(const Rows &r, int64_t unit, int64_t from, int64_t to, const void *x_, Moments *m) {
  const T *x = static_cast<const T *>(x_);
  for (int64_t end; from < to; from = end) {
    const int64_t most = from + (m->count > 0 ? kTileRows : kFirstTileRows);
    end = to < most ? to : most;
    const double n = double(elements_in(r, from, end));
    float pivot[16] = {};
    double first[16], second[16];
    if (m->count > 0) {
      for (int l = 0; l < 16; l++) pivot[l] = float(m->mean[l]);
    } else {
      pivoted_sums(r, unit, from, end, x, pivot, first, second);
      for (int l = 0; l < 16; l++) pivot[l] = float(first[l] * (1 / n));
    }
    pivoted_sums(r, unit, from, end, x, pivot, first, second);
    const double total = m->count + n, share = n / total, weight = m->count * share, per_n = 1 / n;
    for (int l = 0; l < 16; l++) {
      const double tile_mean = first[l] * per_n, delta = pivot[l] + tile_mean - m->mean[l];
      m->mean[l] += delta * share;
      m->m2[l] += (second[l] - first[l] * tile_mean) + delta * delta * weight;
    }
    m->count = total;
  }
}

// --- forward -------------------------------------------------------------------------------------

template <class T, bool relu, bool add, bool past_caches>
void batch_norm_apply(const Rows &r, int64_t unit, int64_t from, int64_t to, const NormLanes &p, const void *x_,
                      const void *residual_, void *y_, uint16_t *mask) {
  const T *x = static_cast<const T *>(x_), *residual = static_cast<const T *>(residual_);
  T *y = static_cast<T *>(y_);
  const F32 mean = load(p.mean), scale = load(p.scale), beta = load(p.beta);
  walk(r, unit, from, to, [&](auto full, int64_t at, int64_t word, int64_t n, int lanes) {
    for (int64_t i = 0; i < n; i++, at += r.row_stride, word += r.word_row) {
      F32 z = (load_row<full.value>(x + at, lanes) - mean) * scale + beta;
      if (add) z = z + load_row<full.value>(residual + at, lanes);
      if (add && relu) mask[word] = bits(z > zero());
      if (relu) z = max(zero(), z);
      put_row<full.value, past_caches>(y + at, z, lanes);
    }
  });
  if (past_caches) stream_fence();
}

// --- backward ------------------------------------------------------------------------------------

template <class T, int relu, bool two, bool keep_dz>
void batch_norm_diff_reduce(const Rows &r, int64_t unit, int64_t from, int64_t to, const NormLanes &p, const void *x_,
                            const void *diff_y_, const void *diff_y2_, const uint16_t *mask, void *dz_,
                            DiffSums *sums) {
  const T *x = static_cast<const T *>(x_), *diff_y = static_cast<const T *>(diff_y_),
          *diff_y2 = static_cast<const T *>(diff_y2_);
  T *dz_out = static_cast<T *>(dz_);
  const F32 mean = load(p.mean), scale = load(p.scale), beta = load(p.beta);
  for (int64_t end; from < to; from = end) {
    end = to < from + kTileRows ? to : from + kTileRows;
    Chains s, sx;
    each_row(r, unit, from, end, [&](int chain, int64_t at, int64_t word, auto full, int lanes) {
      const F32 d = load_row<full.value>(x + at, lanes) - mean;
      F32 dz = load_row<full.value>(diff_y + at, lanes);
      if (two) dz = dz + load_row<full.value>(diff_y2 + at, lanes);
      if (relu == kRecomputed) dz = select(d * scale + beta > zero(), dz, zero());
      if (relu == kStored) dz = select(mask_of(mask[word]), dz, zero());
      if (keep_dz) store_row<full.value>(dz_out + at, dz, lanes);
      s.c[chain] = s.c[chain] + dz;
      sx.c[chain] = sx.c[chain] + dz * d;
    });
    float lanes[16], lanes_x[16];
    store(lanes, s.total());
    store(lanes_x, sx.total());
    for (int l = 0; l < 16; l++) {
      sums->dz[l] += lanes[l];
      sums->dz_x[l] += lanes_x[l];
    }
  }
}

template <class T, bool relu, bool past_caches>
void batch_norm_diff_apply(const Rows &r, int64_t unit, int64_t from, int64_t to, const NormLanes &p, const void *x_,
                           const void *dz_, void *diff_x_) {
  const T *x = static_cast<const T *>(x_), *dz_in = static_cast<const T *>(dz_);
  T *diff_x = static_cast<T *>(diff_x_);
  const F32 mean = load(p.mean), scale = load(p.scale), beta = load(p.beta);
  const F32 mean_dz = load(p.mean_dz), slope = load(p.slope);
  walk(r, unit, from, to, [&](auto full, int64_t at, int64_t, int64_t n, int lanes) {
    for (int64_t i = 0; i < n; i++, at += r.row_stride) {
      const F32 d = load_row<full.value>(x + at, lanes) - mean;
      F32 dz = load_row<full.value>(dz_in + at, lanes);
      if (relu) dz = select(d * scale + beta > zero(), dz, zero());
      put_row<full.value, past_caches>(diff_x + at, ((dz - mean_dz) - d * slope) * scale, lanes);
    }
  });
  if (past_caches) stream_fence();
}

// --- the table -----------------------------------------------------------------------------------

template <class T> constexpr void fill_batch_norm(BatchNormTable &t, int bf16) {
  t.stats[bf16] = batch_norm_stats<T>;
#define APPLY(relu, add)                                                                                               \
  t.apply[bf16][relu][add][0] = batch_norm_apply<T, relu, add, false>;                                                 \
  t.apply[bf16][relu][add][1] = batch_norm_apply<T, relu, add, true>;
  APPLY(0, 0)
  APPLY(0, 1)
  APPLY(1, 0) APPLY(1, 1)
#undef APPLY
#define REDUCE(relu)                                                                                                   \
  t.reduce[bf16][relu][0][0] = batch_norm_diff_reduce<T, relu, false, false>;                                          \
  t.reduce[bf16][relu][0][1] = batch_norm_diff_reduce<T, relu, false, true>;                                           \
  t.reduce[bf16][relu][1][1] = batch_norm_diff_reduce<T, relu, true, true>;
      REDUCE(kNoRelu) REDUCE(kRecomputed) REDUCE(kStored)
#undef REDUCE
#define DIFF_APPLY(relu)                                                                                               \
  t.diff_apply[bf16][relu][0] = batch_norm_diff_apply<T, relu, false>;                                                 \
  t.diff_apply[bf16][relu][1] = batch_norm_diff_apply<T, relu, true>;
          DIFF_APPLY(0) DIFF_APPLY(1)
#undef DIFF_APPLY
}

constexpr BatchNormTable batch_norm_table() {
  BatchNormTable t{};
  fill_batch_norm<float>(t, 0);
  fill_batch_norm<Bf16>(t, 1);
  return t;
}

} // namespace
} // namespace hetero
