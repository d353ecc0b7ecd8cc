// attention.cu: multi-head attention without a matrix of scores in memory, and its gradients.
//
// R is the number of queries or keys of a tile. D is the number of channels of a head, padded with zeros to a multiple
// of 32.
//
// Forward: a block has R queries of a head, and loops over tiles of R keys. For each tile, it computes the scores, an
// online softmax (Milakov and Gimelshein: Online normalizer calculation for softmax, 2018), and the product with the
// values.
//
// Backward: two kernels compute the scores again from lse.
//
//   - diff_keys: a block has R keys, and loops over the queries of all heads that use these keys.
//   - diff_queries: a block has R queries, and loops over the keys.
//
// One block writes each gradient, so the order of blocks does not change the bits of a gradient.
//
// All arithmetic is f32, in shared memory and registers. These kernels do not use tensor cores; attention_tensor.cu
// does, for 16-bit types. The 128 threads of a block divide an (R, R) or (R, D) tile. Thread i has R/8 rows from (i /
// 16)·R/8 on, and every 16th column from i % 16 on.
#include "attention.h"
#include "ops.h"
#include "philox.h"
#include "warp.h"

namespace hetero {
namespace {

// Threads of a block, along a row, and along a column.
constexpr int kBlock = 128, kAcross = 16, kDown = kBlock / kAcross;

// The length of a row is odd, so that adjacent rows start in different banks.
template <int R, int D> using Tile = float[R][D + 1];

// Loads rows first to first + R - 1 of a head into a tile. Rows from `limit` on, and channels beyond those of the head,
// become zero.
template <int R, int D, class T>
__device__ void take(const T *from, int64_t stride, int64_t first, int64_t limit, int64_t d, Tile<R, D> &to) {
  for (int i = static_cast<int>(threadIdx.x); i < R * D; i += kBlock) {
    const int r = i / D, c = i % D;
    to[r][c] = first + r < limit && c < d ? load(from + (first + r) * stride + c) : 0;
  }
}

// Draws the dropout mask of a tile of queries and keys. kept has one bit per pair; a byte contains four adjacent keys.
template <int R>
__device__ void draw(const Heads &a, const TileOrigin &p, int64_t query, int64_t key, uint8_t (&kept)[R][R / 4]) {
  if (!a.ids) return;
  for (int i = static_cast<int>(threadIdx.x); i < R * R / 4; i += kBlock) {
    const int r = i / (R / 4), four = i % (R / 4);
    const auto position = static_cast<uint32_t>(query + r) * 65536u + static_cast<uint32_t>(key + 4 * four);
    kept[r][four] = static_cast<uint8_t>(
        kept_of(a.threshold, a.stream + static_cast<uint32_t>(p.h), a.key, a.ids[p.n], position / 4));
  }
}

template <int R> __device__ float masked(const Heads &a, const uint8_t (&kept)[R][R / 4], int r, int c, float p) {
  if (!a.ids) return p;
  return kept[r][c / 4] >> (c % 4) & 1 ? p * a.factor : 0;
}

template <int R, int D> __device__ float dot(const Tile<R, D> &a, int r, const Tile<R, D> &b, int c) {
  float sum = 0;
  for (int k = 0; k < D; k++) sum = fmaf(a[r][k], b[c][k], sum);
  return sum;
}

// Returns the maximum over the 16 threads of a row; row_sum returns the sum.
__device__ float row_max(float v) {
  for (int step = kAcross / 2; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(kAll, v, step));
  return v;
}
__device__ float row_sum(float v) {
  for (int step = kAcross / 2; step > 0; step /= 2) v += __shfl_xor_sync(kAll, v, step);
  return v;
}

template <int R, int D, class T>
__global__ void attend(Heads a, const T *q, const T *k, const T *v, T *dst, float *lse) {
  constexpr int Rows = R / kDown, Columns = R / kAcross, Channels = D / kAcross;
  __shared__ Tile<R, D> queries, others; // others: keys, then values
  __shared__ Tile<R, R> weights;
  __shared__ uint8_t kept[R][R / 4];
  const TileOrigin p(a, R);
  const int down = static_cast<int>(threadIdx.x) / kAcross * Rows, across = static_cast<int>(threadIdx.x) % kAcross;
  const int64_t at = p.at(a, a.stride), of_kv = p.of_kv(a);
  float largest[Rows], sum[Rows], out[Rows][Channels];
  for (int r = 0; r < Rows; r++) {
    largest[r] = -INFINITY;
    sum[r] = 0;
    for (int c = 0; c < Channels; c++) out[r][c] = 0;
  }
  take<R, D>(q + at, a.stride, p.first, p.length, a.d, queries);
  const int64_t keys = p.first < p.length ? p.keys(a, p.first + R - 1) : 0;
  for (int64_t from = 0; from < keys; from += R) {
    __syncthreads();
    take<R, D>(k + of_kv, a.kv_stride, from, p.length, a.d, others);
    draw<R>(a, p, p.first, from, kept);
    __syncthreads();
    for (int r = 0; r < Rows; r++) {
      const int64_t seen = p.keys(a, p.first + down + r) - from;
      float s[Columns], most = largest[r], part = 0;
      for (int c = 0; c < Columns; c++) {
        const int j = across + c * kAcross;
        s[c] = j < seen ? dot<R, D>(queries, down + r, others, j) * a.scale : -INFINITY;
        most = fmaxf(most, s[c]);
      }
      most = row_max(most); // finite after the first tile: every query sees key 0
      const float shrink = expf(largest[r] - most);
      largest[r] = most;
      for (int c = 0; c < Columns; c++) {
        const int j = across + c * kAcross;
        const float w = expf(s[c] - most);
        part += w;
        weights[down + r][j] = masked<R>(a, kept, down + r, j, w);
      }
      sum[r] = sum[r] * shrink + row_sum(part);
      for (int c = 0; c < Channels; c++) out[r][c] *= shrink;
    }
    __syncthreads();
    take<R, D>(v + of_kv, a.kv_stride, from, p.length, a.d, others);
    __syncthreads();
    for (int j = 0; j < R; j++)
      for (int r = 0; r < Rows; r++)
        for (int c = 0; c < Channels; c++)
          out[r][c] = fmaf(weights[down + r][j], others[j][across + c * kAcross], out[r][c]);
  }
  for (int r = 0; r < Rows; r++) {
    const int64_t i = p.first + down + r;
    if (i >= a.t) continue;
    const bool real = i < p.length;
    for (int c = 0; c < Channels; c++) {
      const int64_t channel = across + c * kAcross;
      if (channel < a.d) store(dst + p.at(a, a.c) + i * a.c + channel, real ? out[r][c] / sum[r] : 0);
    }
    if (across == 0) lse[p.row(a, i)] = real ? largest[r] + logf(sum[r]) : 0;
  }
}

// See launch_inner_products. A warp computes one row.
template <class T> __global__ void inner_products(Heads a, const T *diff, const T *dst, float *inner) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  for (int64_t i = first_index() / 32; i < a.n * a.heads * a.t; i += warps) {
    const int64_t t = i % a.t, h = i / a.t % a.heads, n = i / a.t / a.heads, at = (n * a.t + t) * a.c + h * a.d;
    float sum = 0;
    for (int64_t c = lane; c < a.d; c += 32) sum = fmaf(load(diff + at + c), load(dst + at + c), sum);
    sum = warp_sum(sum);
    if (lane == 0) inner[i] = sum;
  }
}

// The tiles of the backward kernels in shared memory.
template <int R, int D> struct Pairs {
  Tile<R, D> q, k, v, diff;
  Tile<R, R> weights, scores; // weights: probabilities after dropout; scores: gradient of the scores
  uint8_t kept[R][R / 4];
};

// Computes x.weights and x.scores, for queries from `query` on and keys from `key` on.
template <int R, int D>
__device__ void differentiate(const Heads &a, const TileOrigin &p, int64_t query, int64_t key, const float *lse,
                              const float *inner, Pairs<R, D> &x) {
  constexpr int Rows = R / kDown, Columns = R / kAcross;
  const int down = static_cast<int>(threadIdx.x) / kAcross * Rows, across = static_cast<int>(threadIdx.x) % kAcross;
  for (int r = down; r < down + Rows; r++) {
    const int64_t i = query + r, seen = i < p.length ? p.keys(a, i) - key : 0;
    for (int c = 0; c < Columns; c++) {
      const int j = across + c * kAcross;
      float weight = 0, score = 0;
      if (j < seen) {
        const int64_t row = p.row(a, i);
        const float probability = expf(dot<R, D>(x.q, r, x.k, j) * a.scale - lse[row]);
        weight = masked<R>(a, x.kept, r, j, probability);
        score = probability * (masked<R>(a, x.kept, r, j, dot<R, D>(x.diff, r, x.v, j)) - inner[row]) * a.scale;
      }
      x.weights[r][j] = weight;
      x.scores[r][j] = score;
    }
  }
}

template <int R, int D, class T>
__global__ void diff_keys(Heads a, const T *diff, const float *lse, const float *inner, const T *q, const T *k,
                          const T *v, T *diff_k, T *diff_v) {
  constexpr int Rows = R / kDown, Channels = D / kAcross;
  __shared__ Pairs<R, D> x;
  TileOrigin p(a, R, true);
  const int down = static_cast<int>(threadIdx.x) / kAcross * Rows, across = static_cast<int>(threadIdx.x) % kAcross;
  const int64_t of_kv = p.of_kv(a);
  float dk[Rows][Channels] = {}, dv[Rows][Channels] = {};
  take<R, D>(k + of_kv, a.kv_stride, p.first, p.length, a.d, x.k);
  take<R, D>(v + of_kv, a.kv_stride, p.first, p.length, a.d, x.v);
  const int64_t queries = p.first < p.length ? p.length : 0;
  for (int head = 0; head < a.group; head++, p.h++)
    for (int64_t from = a.causal ? p.first : 0; from < queries; from += R) {
      __syncthreads();
      take<R, D>(q + p.at(a, a.stride), a.stride, from, p.length, a.d, x.q);
      take<R, D>(diff + p.at(a, a.c), a.c, from, p.length, a.d, x.diff);
      draw<R>(a, p, from, p.first, x.kept);
      __syncthreads();
      differentiate<R, D>(a, p, from, p.first, lse, inner, x);
      __syncthreads();
      for (int i = 0; i < R; i++)
        for (int r = 0; r < Rows; r++)
          for (int c = 0; c < Channels; c++) {
            dk[r][c] = fmaf(x.scores[i][down + r], x.q[i][across + c * kAcross], dk[r][c]);
            dv[r][c] = fmaf(x.weights[i][down + r], x.diff[i][across + c * kAcross], dv[r][c]);
          }
    }
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Channels; c++) {
      const int64_t j = p.first + down + r, channel = across + c * kAcross;
      if (j >= a.t || channel >= a.d) continue;
      store(diff_k + of_kv + j * a.kv_stride + channel, dk[r][c]);
      store(diff_v + of_kv + j * a.kv_stride + channel, dv[r][c]);
    }
}

template <int R, int D, class T>
__global__ void diff_queries(Heads a, const T *diff, const float *lse, const float *inner, const T *q, const T *k,
                             const T *v, T *diff_q) {
  constexpr int Rows = R / kDown, Channels = D / kAcross;
  __shared__ Pairs<R, D> x;
  const TileOrigin p(a, R);
  const int down = static_cast<int>(threadIdx.x) / kAcross * Rows, across = static_cast<int>(threadIdx.x) % kAcross;
  const int64_t at = p.at(a, a.stride), of_kv = p.of_kv(a);
  float dq[Rows][Channels] = {};
  take<R, D>(q + at, a.stride, p.first, p.length, a.d, x.q);
  take<R, D>(diff + p.at(a, a.c), a.c, p.first, p.length, a.d, x.diff);
  const int64_t keys = p.first < p.length ? p.keys(a, p.first + R - 1) : 0;
  for (int64_t from = 0; from < keys; from += R) {
    __syncthreads();
    take<R, D>(k + of_kv, a.kv_stride, from, p.length, a.d, x.k);
    take<R, D>(v + of_kv, a.kv_stride, from, p.length, a.d, x.v);
    draw<R>(a, p, p.first, from, x.kept);
    __syncthreads();
    differentiate<R, D>(a, p, p.first, from, lse, inner, x);
    __syncthreads();
    for (int j = 0; j < R; j++)
      for (int r = 0; r < Rows; r++)
        for (int c = 0; c < Channels; c++)
          dq[r][c] = fmaf(x.scores[down + r][j], x.k[j][across + c * kAcross], dq[r][c]);
  }
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Channels; c++) {
      const int64_t i = p.first + down + r, channel = across + c * kAcross;
      if (i < a.t && channel < a.d) store(diff_q + at + i * a.stride + channel, dq[r][c]);
    }
}

// Calls body with R and D. D is at least the number of channels of a head.
template <class Body> std::unique_ptr<Kernel> sized(const AttentionShape &s, Body body) {
  using std::integral_constant;
  if (s.heads.d <= 32) return body(integral_constant<int, 32>{}, integral_constant<int, 32>{});
  if (s.heads.d <= 64) return body(integral_constant<int, 32>{}, integral_constant<int, 64>{});
  return body(integral_constant<int, 16>{}, integral_constant<int, kMostChannels>{});
}

} // namespace

template <class T> void launch_inner_products(const Heads &a, const T *diff, const T *dst, float *inner, void *queue) {
  launch(inner_products<T>, over(a.n * a.heads * a.t * 32), queue, a, diff, dst, inner);
}
template void launch_inner_products(const Heads &, const bf16 *, const bf16 *, float *, void *);
template void launch_inner_products(const Heads &, const f16 *, const f16 *, float *, void *);

std::unique_ptr<Kernel> make_attention(const Request &request) {
  const AttentionShape s(request, 0);
  if (auto kernel = make_tensor_attention(s)) return kernel;
  return with_float(s.specs.in[0], [&](auto type) {
    using T = decltype(type);
    return sized(s, [&](auto rows, auto channels) -> std::unique_ptr<Kernel> {
      constexpr int R = decltype(rows)::value, D = decltype(channels)::value;
      return launcher(s.specs, [s](const Args &x) {
        launch(attend<R, D, T>, s.grid(R, kBlock), x.queue, s.with(x), s.part<const T>(x.in, 0),
               s.part<const T>(x.in, 1), s.part<const T>(x.in, 2), static_cast<T *>(x.out[0]),
               static_cast<float *>(x.out[1]));
      });
    });
  });
}

std::unique_ptr<Kernel> make_attention_diff(const Request &request) {
  AttentionShape s(request, 3);
  want_f32(s.specs.in[2]);
  s.specs.workspace = s.heads.n * s.heads.heads * s.heads.t * int64_t{sizeof(float)};
  if (auto kernel = make_tensor_attention_diff(s)) return kernel;
  return with_float(s.specs.in[0], [&](auto type) {
    using T = decltype(type);
    return sized(s, [&](auto rows, auto channels) -> std::unique_ptr<Kernel> {
      constexpr int R = decltype(rows)::value, D = decltype(channels)::value;
      return launcher(s.specs, [s](const Args &x) {
        const Heads a = s.with(x);
        const auto *diff = static_cast<const T *>(x.in[0]), *dst = static_cast<const T *>(x.in[1]);
        const auto *lse = static_cast<const float *>(x.in[2]);
        auto *inner = static_cast<float *>(x.workspace);
        const auto *q = s.part<const T>(x.in + s.first, 0), *k = s.part<const T>(x.in + s.first, 1),
                   *v = s.part<const T>(x.in + s.first, 2);
        launch_inner_products(a, diff, dst, inner, x.queue);
        launch(diff_keys<R, D, T>, s.grid(R, kBlock, 0, true), x.queue, a, diff, lse, inner, q, k, v,
               s.part<T>(x.out, 1), s.part<T>(x.out, 2));
        launch(diff_queries<R, D, T>, s.grid(R, kBlock), x.queue, a, diff, lse, inner, q, k, v, s.part<T>(x.out, 0));
      });
    });
  });
}

} // namespace hetero
