// batchnorm_simd.h: the loops of batchnorm_table.h, on vectors of sixteen lanes.
//
// f32 sums cover tiles of kTileRows rows. The sums of tiles are added in f64, so the error does not grow with the
// batch. Moments are sums of deviations from a pivot: the mean of the previous rows. This pivot is close to the mean of
// the tile, so that the variance loses few digits by cancellation.
#pragma once

#include "batchnorm_table.h"
#include "rows_simd.h"

namespace hetero {
namespace {

constexpr int64_t kFirstTileRows = 64; // rows of the first tile; it is read twice, because its pivot is its own mean

// Prefetches a row some KiB ahead if the tensors do not fit into the caches (far), because hardware prefetchers handle
// two streams badly. put_row stores to such tensors past the caches, so that the CPU does not read the cache lines
// first.
template <bool far, class T> SIMD_INLINE void ahead(const T *a) {
  if (far) __builtin_prefetch(a + 4096 / sizeof(T));
}

template <bool full, bool far, class T> SIMD_INLINE void put_row(T *a, F32 v, int lanes) {
  if (full && far)
    stream(a, v);
  else
    store_row<full>(a, v, lanes);
}

// --- statistics ----------------------------------------------------------------------------------

// For each unit u of the piece, over the piece's rows:
//
//     first[u] = sum(x - pivot[u])
//     second[u] = sum((x - pivot[u])²)
template <bool far, class T>
SIMD_INLINE void pivoted_sums(const Rows &r, const Piece &p, const T *x, const float (*pivot)[16], double (*first)[16],
                              double (*second)[16]) {
  const auto deviation = [&](int64_t at, auto full, int lanes, F32 from) {
    ahead<far>(x + at);
    const F32 d = load_row<full.value>(x + at, lanes) - from;
    return full.value ? d : select(first_lanes(lanes), d, zero());
  };
  if (p.units == 1) {
    const F32 from = load(pivot[0]);
    Chains s, q;
    each_row(r, p.unit, p.from, p.to, [&](int chain, int64_t at, int64_t, auto full, int lanes) {
      const F32 d = deviation(at, full, lanes, from);
      s.c[chain] = s.c[chain] + d;
      q.c[chain] = q.c[chain] + d * d;
    });
    fold(r.unit_channels, s.total(), first[0]);
    fold(r.unit_channels, q.total(), second[0]);
    return;
  }
  F32 s[kMostUnits], q[kMostUnits];
  for (int64_t u = 0; u < p.units; u++) s[u] = q[u] = zero();
  each_row_of_units(r, p.unit, p.units, p.from, p.to, [&](int64_t u, int64_t at, int64_t, auto full, int lanes) {
    const F32 d = deviation(at, full, lanes, load(pivot[u]));
    s[u] = s[u] + d;
    q[u] = q[u] + d * d;
  });
  for (int64_t u = 0; u < p.units; u++) {
    fold(r.unit_channels, s[u], first[u]);
    fold(r.unit_channels, q[u], second[u]);
  }
}

// Rounds a pivot to the tensor's type. Deviations of bf16 elements from such a pivot are exact.
template <class T> SIMD_INLINE float rounded(double x) {
  T element;
  put(&element, float(x));
  return to_f32(element);
}

template <class T, bool far> void batch_norm_stats(const Rows &r, const Piece &p, const void *x_, Moments *moments) {
  const T *x = static_cast<const T *>(x_);
  float pivot[kMostUnits][16];
  double first[kMostUnits][16], second[kMostUnits][16];
  for (Piece tile = p; tile.from < p.to; tile.from = tile.to) {
    const double before = moments[0].count;
    const int64_t most = tile.from + (before > 0 ? kTileRows : kFirstTileRows);
    tile.to = p.to < most ? p.to : most;
    const double n = double(elements_in(r, tile.from, tile.to)), per_n = 1 / n;
    for (int64_t u = 0; u < p.units; u++)
      for (int l = 0; l < 16; l++) pivot[u][l] = before > 0 ? rounded<T>(moments[u].mean[l]) : 0.0f;
    pivoted_sums<far>(r, tile, x, pivot, first, second);
    if (before == 0) {
      for (int64_t u = 0; u < p.units; u++)
        for (int l = 0; l < 16; l++) pivot[u][l] = rounded<T>(first[u][l] * per_n);
      pivoted_sums<far>(r, tile, x, pivot, first, second);
    }
    const double total = before + n, fraction = n / total, weight = before * fraction;
    for (int64_t u = 0; u < p.units; u++) {
      Moments &m = moments[u];
      for (int l = 0; l < 16; l++) {
        const double tile_mean = first[u][l] * per_n, delta = pivot[u][l] + tile_mean - m.mean[l];
        m.mean[l] += delta * fraction;
        m.m2[l] += (second[u][l] - first[u][l] * tile_mean) + delta * delta * weight;
      }
      m.count = total;
    }
  }
}

// --- forward -------------------------------------------------------------------------------------

void norm_lanes(const Rows &r, int64_t unit, const NormVectors &v, double eps, double n, NormLanes *out) {
  float var[16] = {}, gamma[16] = {}, diff_gamma[16] = {}, diff_beta[16] = {};
  *out = NormLanes{};
  for (int64_t l = 0; l < 16; l++) {
    const int64_t c = unit * r.unit_channels + l % r.unit_channels;
    if (c >= r.channels) continue;
    out->mean[l] = v.mean[c];
    out->beta[l] = v.beta[c];
    var[l] = v.var[c];
    gamma[l] = v.gamma[c];
    if (v.diff_gamma) diff_gamma[l] = v.diff_gamma[c];
    if (v.diff_beta) diff_beta[l] = v.diff_beta[c];
  }
  for (int l = 0; l < 16; l++) {
    const double inverse = 1 / ::sqrt(double(var[l]) + eps); // in double, so that only the results below are rounded
    out->inverse[l] = float(inverse);
    out->scale[l] = float(gamma[l] * inverse);
    out->slope[l] = float(diff_gamma[l] / n * inverse);
    out->mean_dz[l] = float(diff_beta[l] / n);
  }
}

// NormLanes as vectors.
struct Norm {
  F32 mean, scale, beta, mean_dz, slope;
  SIMD_INLINE explicit Norm(const NormLanes &l)
      : mean(load(l.mean)), scale(load(l.scale)), beta(load(l.beta)), mean_dz(load(l.mean_dz)), slope(load(l.slope)) {}
};

// Calls row(norm, at, word, Bool<full>, lanes) for all rows of a piece.
template <class Row> SIMD_INLINE void each_normed_row(const Rows &r, const Piece &p, const NormLanes *lanes, Row row) {
  if (p.units > 1)
    return each_row_of_units(
        r, p.unit, p.units, p.from, p.to,
        [&](int64_t u, int64_t at, int64_t word, auto full, int n) { row(Norm(lanes[u]), at, word, full, n); });
  const Norm norm(lanes[0]);
  walk(r, p.unit, p.from, p.to, [&](auto full, int64_t at, int64_t word, int64_t n, int width) {
    for (int64_t i = 0; i < n; i++, at += r.row_stride, word += r.word_row) row(norm, at, word, full, width);
  });
}

template <class T, bool relu, bool add, bool far>
void batch_norm_apply(const Rows &r, const Piece &p, const NormLanes *norms, const void *x_, const void *residual_,
                      void *y_, uint16_t *mask) {
  const T *x = static_cast<const T *>(x_), *residual = static_cast<const T *>(residual_);
  T *y = static_cast<T *>(y_);
  each_normed_row(r, p, norms, [&](const Norm &norm, int64_t at, int64_t word, auto full, int lanes) {
    ahead<far>(x + at);
    if (add) ahead<far>(residual + at);
    F32 z = (load_row<full.value>(x + at, lanes) - norm.mean) * norm.scale + norm.beta;
    if (add) z = z + load_row<full.value>(residual + at, lanes);
    if (add && relu) mask[word] = bits(z > zero());
    if (relu) z = max(zero(), z);
    put_row<full.value, far>(y + at, z, lanes);
  });
  if (far) stream_fence();
}

// --- backward ------------------------------------------------------------------------------------

template <class T, int relu, bool two, bool keep_dz, bool far>
void batch_norm_diff_reduce(const Rows &r, const Piece &p, const NormLanes *norms, const void *x_, const void *diff_y_,
                            const void *diff_y2_, const uint16_t *mask, void *dz_, DiffSums *sums) {
  const T *x = static_cast<const T *>(x_), *diff_y = static_cast<const T *>(diff_y_),
          *diff_y2 = static_cast<const T *>(diff_y2_);
  T *dz_out = static_cast<T *>(dz_);
  const auto row = [&](const Norm &norm, int64_t at, int64_t word, auto full, int lanes, F32 &s, F32 &sx) {
    ahead<far>(x + at);
    ahead<far>(diff_y + at);
    if (two) ahead<far>(diff_y2 + at);
    const F32 d = load_row<full.value>(x + at, lanes) - norm.mean;
    F32 dz = load_row<full.value>(diff_y + at, lanes);
    if (two) dz = dz + load_row<full.value>(diff_y2 + at, lanes);
    if (relu == kRecomputed) dz = select(d * norm.scale + norm.beta > zero(), dz, zero());
    if (relu == kStored) dz = select(mask_of(mask[word]), dz, zero());
    if (keep_dz) store_row<full.value>(dz_out + at, dz, lanes);
    s = s + dz;
    sx = sx + dz * d;
  };
  const auto add = [](F32 v, double *to) {
    float lanes[16];
    store(lanes, v);
    for (int l = 0; l < 16; l++) to[l] += lanes[l];
  };
  for (int64_t from = p.from, to; from < p.to; from = to) {
    to = p.to < from + kTileRows ? p.to : from + kTileRows;
    if (p.units == 1) {
      const Norm norm(norms[0]);
      Chains s, sx;
      each_row(r, p.unit, from, to, [&](int chain, int64_t at, int64_t word, auto full, int lanes) {
        row(norm, at, word, full, lanes, s.c[chain], sx.c[chain]);
      });
      add(s.total(), sums->dz);
      add(sx.total(), sums->dz_x);
      continue;
    }
    F32 s[kMostUnits], sx[kMostUnits];
    for (int64_t u = 0; u < p.units; u++) s[u] = sx[u] = zero();
    each_row_of_units(r, p.unit, p.units, from, to, [&](int64_t u, int64_t at, int64_t word, auto full, int lanes) {
      row(Norm(norms[u]), at, word, full, lanes, s[u], sx[u]);
    });
    for (int64_t u = 0; u < p.units; u++) {
      add(s[u], sums[u].dz);
      add(sx[u], sums[u].dz_x);
    }
  }
}

template <class T, bool relu, bool far>
void batch_norm_diff_apply(const Rows &r, const Piece &p, const NormLanes *norms, const void *x_, const void *dz_,
                           void *diff_x_) {
  const T *x = static_cast<const T *>(x_), *dz_in = static_cast<const T *>(dz_);
  T *diff_x = static_cast<T *>(diff_x_);
  each_normed_row(r, p, norms, [&](const Norm &norm, int64_t at, int64_t, auto full, int lanes) {
    ahead<far>(x + at);
    ahead<far>(dz_in + at);
    const F32 d = load_row<full.value>(x + at, lanes) - norm.mean;
    F32 dz = load_row<full.value>(dz_in + at, lanes);
    if (relu) dz = select(d * norm.scale + norm.beta > zero(), dz, zero());
    put_row<full.value, far>(diff_x + at, ((dz - norm.mean_dz) - d * norm.slope) * norm.scale, lanes);
  });
  if (far) stream_fence();
}

// --- the table -----------------------------------------------------------------------------------

template <class T, bool far> constexpr void fill_batch_norm(BatchNormTable &t, int bf16) {
  t.stats[bf16][far] = batch_norm_stats<T, far>;
  auto &apply = t.apply[bf16];
  apply[0][0][far] = batch_norm_apply<T, false, false, far>;
  apply[0][1][far] = batch_norm_apply<T, false, true, far>;
  apply[1][0][far] = batch_norm_apply<T, true, false, far>;
  apply[1][1][far] = batch_norm_apply<T, true, true, far>;
  auto &reduce = t.reduce[bf16]; // for two gradients, or with a stored mask, the op always stores dz
  reduce[kNoRelu][0][0][far] = batch_norm_diff_reduce<T, kNoRelu, false, false, far>;
  reduce[kNoRelu][0][1][far] = batch_norm_diff_reduce<T, kNoRelu, false, true, far>;
  reduce[kNoRelu][1][1][far] = batch_norm_diff_reduce<T, kNoRelu, true, true, far>;
  reduce[kRecomputed][0][0][far] = batch_norm_diff_reduce<T, kRecomputed, false, false, far>;
  reduce[kRecomputed][1][1][far] = batch_norm_diff_reduce<T, kRecomputed, true, true, far>;
  reduce[kStored][0][1][far] = batch_norm_diff_reduce<T, kStored, false, true, far>;
  reduce[kStored][1][1][far] = batch_norm_diff_reduce<T, kStored, true, true, far>;
  t.diff_apply[bf16][0][far] = batch_norm_diff_apply<T, false, far>;
  t.diff_apply[bf16][1][far] = batch_norm_diff_apply<T, true, far>;
}

constexpr BatchNormTable batch_norm_table() {
  BatchNormTable t{};
  t.lanes = norm_lanes;
  fill_batch_norm<float, false>(t, 0);
  fill_batch_norm<float, true>(t, 0);
  fill_batch_norm<Bf16, false>(t, 1);
  fill_batch_norm<Bf16, true>(t, 1);
  return t;
}

} // namespace
} // namespace hetero
