// attention_tensor.cu: multi-head attention of bf16 and f16 on tensor cores, and its gradients.
//
// The algorithm is that of attention.cu (FlashAttention-2: Dao, 2023). Products have 16-bit operands and f32 sums.
// Statistics, exponentials and sums over tiles are f32. Probabilities and gradients of scores are rounded to the type
// of the operands before they are multiplied.
//
// Matrices, without dropout. A row of S, P, dP and dS is a query, and a column is a key:
//
//     Q, K, V, diff_dst       operands of one head, (rows, D); D: channels of a head, padded with zeros to 64 or 128
//     S = scale·Q·Kᵀ          scores
//     P = softmax(S)          probabilities, from lse in the gradients
//     dP = diff_dst·Vᵀ        gradient of P
//     dS = P·(dP - inner)     gradient of S, element by element; inner: dot product of diff_dst and dst of the query
//
// Kernels:
//
//     attend        a warp has 16 or 32 queries. For each tile of keys, it computes S, updates the online softmax,
//                   and adds P·V to dst. P never leaves its registers.
//     diff_keys     a warp has 16 keys. For every 16 queries of a head that uses these keys, it computes Sᵀ = K·Qᵀ,
//                   diff_v += Pᵀ·diff_dst and diff_k += scale·dSᵀ·Q.
//     diff_queries  a warp has 16 queries. For every 16 keys, it computes S and diff_q += scale·dS·K.
//
// The four warps of a block share tiles of the other operands in shared memory. While a tile is in use, the next one is
// copied. One warp sums each element of a gradient in a fixed order, so gradients are bit-equal in every run.
//
// The rows of a tile are kStride = D + 8 elements apart (tile.h, which also defines the matrices A, B and D of a warp).
#include "attention.h"
#include "philox.h"
#include "tile.h"
#include "warp.h"

namespace hetero {
namespace {

constexpr int kWarps = 4, kBlock = 32 * kWarps;
constexpr int kChunk = 32; // keys whose scores attend has in registers at a time; a larger chunk needs more registers
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// Sizes of the tiles. If a warp has more queries, more products use each load of keys. But then there are fewer blocks,
// and a warp needs more registers.
template <int D> struct Sizes {
  static constexpr int stride = D + 8;
  static constexpr int high = D <= 64 ? 2 : 1; // attend: matrices A of a warp, with 16 queries each
  static constexpr int queries = 16 * high * kWarps, keys = 64;
  static constexpr int own = 16 * kWarps,
                       others = D <= 64 ? 64 : 32; // gradients: rows of the block's own tiles, of other tiles
  static constexpr int forward_bytes = (queries + 4 * keys) * stride * 2;
  static constexpr int backward_bytes = (2 * own + 4 * others) * stride * 2 + 4 * others * 4;
};

template <class T> __device__ T zero() {
  T v;
  store(&v, 0);
  return v;
}

// Begins to copy rows first to first + R - 1 of a head into a tile. Rows from `limit` on, and channels beyond those of
// the head, become zero. packs states that addresses and sizes permit copies of 16 bytes.
template <int R, int D, class T>
__device__ void begin_copy(T *tile, const T *from, int64_t stride, int first, int limit, int d, bool packs) {
  if (packs) {
    for (int i = 0; i < R * D / 8 / kBlock; i++) {
      const int pack = i * kBlock + static_cast<int>(threadIdx.x), r = pack / (D / 8), c = pack % (D / 8) * 8;
      const bool real = first + r < limit && c < d;
      copy16(tile + r * (D + 8) + c, real ? from + (first + r) * stride + c : from, real);
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < R * D; i += kBlock) {
    const int r = i / D, c = i % D;
    tile[r * (D + 8) + c] = first + r < limit && c < d ? from[(first + r) * stride + c] : zero<T>();
  }
}

// Writes 16 rows of results of a warp to rows `first` to first + 15 of a head. The results are `sums`, D/8 adjacent
// matrices D (tile.h), times factor; factor[half] belongs to the lane's row lane_row() + 8·half. The warp first
// collects the rows in `tile`, its part of a tile in shared memory, which permits stores of 16 bytes. Rows from `limit`
// on become zero. Rows from `end` on do not exist.
template <int D, class T>
__device__ void write(const float (&sums)[D / 8][4], const float (&factor)[2], T *tile, T *to, int64_t stride,
                      int first, int limit, int end, int d, bool packs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int r = lane_row() + 8 * half;
    const bool real = first + r < limit;
    for (int c = 0; c < D / 8; c++) {
      const float x = real ? sums[c][2 * half] * factor[half] : 0, y = real ? sums[c][2 * half + 1] * factor[half] : 0;
      *reinterpret_cast<uint32_t *>(tile + r * (D + 8) + 8 * c + lane_column()) = pack(T{}, x, y);
    }
  }
  __syncwarp();
  if (packs) {
    for (int i = lane; i < 16 * D / 8; i += 32) {
      const int r = i / (D / 8), c = i % (D / 8) * 8;
      if (first + r < end && c < d)
        *reinterpret_cast<Pack<T> *>(to + (first + r) * stride + c) =
            *reinterpret_cast<const Pack<T> *>(tile + r * (D + 8) + c);
    }
    return;
  }
  for (int i = lane; i < 16 * D; i += 32) {
    const int r = i / D, c = i % D;
    if (first + r < end && c < d) to[(first + r) * stride + c] = tile[r * (D + 8) + c];
  }
}

// Determines the pairs that dropout keeps. Each Philox word of 32 bits decides about one pair, so one call of Philox
// decides about four adjacent keys.
struct Draw {
  uint64_t threshold;
  uint32_t stream, key[2];
  int64_t id;

  __device__ Draw(const Heads &a, const TileOrigin &p)
      : threshold(a.threshold), stream(a.stream + static_cast<uint32_t>(p.h)), key{0, 0}, id(0) {
    if (!a.ids) return;
    key[0] = a.key[0];
    key[1] = a.key[1];
    id = a.ids[p.n];
  }
  // Returns whether query i keeps the keys j to j + 3, one bit each.
  __device__ unsigned four(int i, int j) const {
    const uint32_t position = static_cast<uint32_t>(i) * 65536u + static_cast<uint32_t>(j);
    return kept_of(threshold, stream, key, id, position / 4);
  }
  // Returns the bits for a matrix D whose rows are queries from i on, and whose columns are keys from j on. Bit e
  // belongs to the lane's element e. Two adjacent lanes need the same four keys of two queries, so each lane draws for
  // one of the queries.
  __device__ unsigned of_queries(int i, int j) const {
    const int odd = static_cast<int>(threadIdx.x) % 2, shift = 2 * odd;
    const unsigned own = four(i + lane_row() + 8 * odd, j + lane_column() / 4 * 4),
                   other = __shfl_xor_sync(kAll, own, 1);
    const unsigned upper = odd ? other : own, lower = odd ? own : other;
    return (upper >> shift & 3) | (lower >> shift & 3) << 2;
  }
  // Returns the bits for two adjacent matrices D, whose rows are keys from j on, and whose columns are queries from i
  // on. Bit 4·x + e belongs to the lane's element e of matrix x. Four lanes need the same four adjacent keys of four
  // queries, so each lane draws for one of the queries.
  __device__ unsigned of_keys(int i, int j) const {
    const int lane = lane_row() % 4, query = i + lane_column() + lane % 2 + lane / 2 * 8, from = j + lane_row() / 4 * 4;
    unsigned bits = (four(query, from) | four(query, from + 8) << 4) << 8 * lane; // 8 keys of the query
    bits |= __shfl_xor_sync(kAll, bits, 4);
    bits |= __shfl_xor_sync(kAll, bits, 8);
    unsigned own = 0;
    for (int e = 0; e < 8; e++) { // matrix e / 4, column e % 2, key lane_row() + (e / 2 % 2)·8
      const int q = e / 4 * 2 + e % 2, k = lane + e / 2 % 2 * 4;
      own |= (bits >> (8 * q + k) & 1) << e;
    }
    return own;
  }
};

template <int D, class T>
__global__ void __launch_bounds__(kBlock)
    attend(Heads a, bool packs, const T *q, const T *k, const T *v, T *dst, float *lse) {
  using S = Sizes<D>;
  constexpr int M = S::high, N = S::keys, kStride = S::stride, kTile = N * kStride;
  T *const queries = reinterpret_cast<T *>(dynamic_shared()), *const keys = queries + S::queries * kStride,
           *const values = keys + 2 * kTile;
  const TileOrigin p(a, S::queries);
  const Draw draw(a, p);
  const int first = static_cast<int>(p.first), length = static_cast<int>(p.length), d = static_cast<int>(a.d);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 * M; // the warp's first query in the tile
  // Returns the number of keys that query i uses.
  const auto seen = [&](int i) { return a.causal && i + 1 < length ? i + 1 : length; };
  const int total = first < length ? seen(first + S::queries - 1) : 0;
  const int most_seen = first + row < length ? seen(first + row + 16 * M - 1) : 0, least_seen = seen(first + row);
  const int64_t at = p.at(a, a.stride), of_kv = p.of_kv(a);
  const float scale = a.scale * kLog2E; // exp(x·a.scale) = 2^(x·scale)
  uint32_t query[M][D / 16][4];
  float out[M][D / 8][4] = {}, largest[M][2], sum[M][2] = {};
#pragma unroll
  for (int m = 0; m < M; m++) largest[m][0] = largest[m][1] = -INFINITY;
  if (total > 0) {
    begin_copy<S::queries, D>(queries, q + at, a.stride, first, length, d, packs);
    begin_copy<N, D>(keys, k + of_kv, a.kv_stride, 0, length, d, packs);
    begin_copy<N, D>(values, v + of_kv, a.kv_stride, 0, length, d, packs);
    end_copies();
  }
  for (int from = 0; from < total; from += N) {
    const int now = from / N % 2 * kTile, next = kTile - now;
    if (from + N < total) {
      begin_copy<N, D>(keys + next, k + of_kv, a.kv_stride, from + N, length, d, packs);
      begin_copy<N, D>(values + next, v + of_kv, a.kv_stride, from + N, length, d, packs);
    }
    end_copies();
    await_copies<1>();
    __syncthreads();
    if (from == 0) {
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int c = 0; c < D / 16; c++) load_a(query[m][c], queries, kStride, row + 16 * m, 16 * c);
    }
    // Registers contain the scores of kChunk keys at a time. Chunks that no query of the warp uses are skipped.
    for (int chunk = 0; chunk < N && from + chunk < most_seen; chunk += kChunk) {
      float s[M][kChunk / 8][4] = {};
#pragma unroll
      for (int c = 0; c < D / 16; c++)
#pragma unroll
        for (int n = 0; n < kChunk / 16; n++) {
          uint32_t b[4];
          load_b_of_rows(b, keys + now, kStride, chunk + 16 * n, 16 * c);
#pragma unroll
          for (int m = 0; m < M; m++) multiply_pair<T>(s[m][2 * n], s[m][2 * n + 1], query[m][c], b);
        }
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (from + chunk + kChunk > least_seen) {
            const int limit = seen(first + row + 16 * m + 8 * half + lane_row()) - from - chunk - lane_column();
            for (int n = 0; n < kChunk / 8; n++) {
              if (8 * n >= limit) s[m][n][2 * half] = -INFINITY;
              if (8 * n + 1 >= limit) s[m][n][2 * half + 1] = -INFINITY;
            }
          }
          float most = largest[m][half];
          for (int n = 0; n < kChunk / 8; n++) most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
          most = quad_max(most); // finite after the first chunk: every query uses key 0
          const float shrink = fast_exp2((largest[m][half] - most) * scale), offset = most * scale;
          largest[m][half] = most;
          float part = 0;
          for (int n = 0; n < kChunk / 8; n++)
            for (int e = 2 * half; e < 2 * half + 2; e++) {
              s[m][n][e] = fast_exp2(fmaf(s[m][n][e], scale, -offset));
              part += s[m][n][e];
            }
          sum[m][half] = sum[m][half] * shrink + part; // of this lane's keys
          for (int c = 0; c < D / 8; c++) {
            out[m][c][2 * half] *= shrink;
            out[m][c][2 * half + 1] *= shrink;
          }
        }
      if (a.ids)
#pragma unroll
        for (int m = 0; m < M; m++)
          for (int n = 0; n < kChunk / 8; n++) {
            const unsigned kept = draw.of_queries(first + row + 16 * m, from + chunk + 8 * n);
            for (int e = 0; e < 4; e++) s[m][n][e] = kept >> e & 1 ? s[m][n][e] : 0;
          }
#pragma unroll
      for (int n = 0; n < kChunk / 16; n++) {
        uint32_t weights[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) as_a<T>(weights[m], s[m][2 * n], s[m][2 * n + 1]);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
          uint32_t b[4];
          load_b(b, values + now, kStride, chunk + 16 * n, 16 * c);
#pragma unroll
          for (int m = 0; m < M; m++) multiply_pair<T>(out[m][2 * c], out[m][2 * c + 1], weights[m], b);
        }
      }
    }
    __syncthreads(); // the next copies overwrite this tile
  }
#pragma unroll
  for (int m = 0; m < M; m++) {
    const int i = first + row + 16 * m;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float whole = quad_sum(sum[m][half]);
      const int query_row = i + 8 * half + lane_row();
      factor[half] = (a.ids ? a.factor : 1) / whole;
      if (lane_column() == 0 && query_row < a.t)
        lse[p.row(a, query_row)] = query_row < length ? fmaf(largest[m][half], a.scale, log2f(whole) * kLn2) : 0;
    }
    write<D>(out[m], factor, queries + (row + 16 * m) * kStride, dst + p.at(a, a.c), a.c, i, length,
             static_cast<int>(a.t), d, packs);
  }
}

// Begins to copy rows first to first + R - 1 of lse and inner of a head; rows from `limit` on become zero.
template <int R>
__device__ void begin_copy_statistics(float *lses, float *inners, const float *lse, const float *inner, int first,
                                      int limit) {
  const int r = static_cast<int>(threadIdx.x);
  if (r >= R) return;
  const bool real = first + r < limit;
  copy4(lses + r, real ? lse + first + r : lse, real);
  copy4(inners + r, real ? inner + first + r : inner, real);
}

// Computes the weight and the gradient of the score of one pair of query and key. On entry, score is the score, and
// diff is the gradient of the weight. scale and lse contain the factor log2(e), because the exponential has base 2.
__device__ inline void differentiate(float &score, float &diff, float scale, float lse, float inner, bool real,
                                     bool kept, float factor) {
  const float probability = fast_exp2(fmaf(score, scale, -lse));
  score = real && kept ? probability * factor : 0;
  diff = real ? probability * ((kept ? diff * factor : 0) - inner) : 0;
}

template <int D, class T>
__global__ void __launch_bounds__(kBlock)
    diff_keys(Heads a, bool packs, const T *diff, const float *lse, const float *inner, const T *q, const T *k,
              const T *v, T *diff_k, T *diff_v) {
  using S = Sizes<D>;
  constexpr int N = S::others, kStride = S::stride, kTile = N * kStride;
  T *const keys = reinterpret_cast<T *>(dynamic_shared()), *const values = keys + S::own * kStride,
           *const queries = values + S::own * kStride, *const diffs = queries + 2 * kTile;
  float *const lses = reinterpret_cast<float *>(diffs + 2 * kTile), *const inners = lses + 2 * N;
  TileOrigin p(a, S::own, true);
  const int first = static_cast<int>(p.first), length = static_cast<int>(p.length), d = static_cast<int>(a.d);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, own = first + row; // the warp's first key
  const int begin = a.causal ? first : 0, end = first < length ? length : 0;
  const int64_t of_kv = p.of_kv(a);
  const float scale = a.scale * kLog2E, factor = a.ids ? a.factor : 1;
  constexpr bool kHeld = D <= 64; // the warp's keys and values fit in registers; otherwise each use loads them
  uint32_t key[kHeld ? D / 16 : 1][4], value[kHeld ? D / 16 : 1][4];
  float dk[D / 8][4] = {}, dv[D / 8][4] = {};
  const auto copy = [&](int from, int to) {
    begin_copy<N, D>(queries + to * kTile, q + p.at(a, a.stride), a.stride, from, length, d, packs);
    begin_copy<N, D>(diffs + to * kTile, diff + p.at(a, a.c), a.c, from, length, d, packs);
    begin_copy_statistics<N>(lses + to * N, inners + to * N, lse + p.row(a, 0), inner + p.row(a, 0), from, length);
  };
  if (begin < end) {
    begin_copy<S::own, D>(keys, k + of_kv, a.kv_stride, first, length, d, packs);
    begin_copy<S::own, D>(values, v + of_kv, a.kv_stride, first, length, d, packs);
  }
  for (int of_group = 0; begin < end && of_group < a.group; of_group++, p.h++) {
    const Draw draw(a, p);
    copy(begin, 0);
    end_copies();
    for (int from = begin, now = 0; from < end; from += N, now = 1 - now) {
      if (from + N < end) copy(from + N, 1 - now);
      end_copies();
      await_copies<1>();
      __syncthreads();
      if (kHeld && from == begin)
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
          load_a(key[kHeld ? c : 0], keys, kStride, row, 16 * c);
          load_a(value[kHeld ? c : 0], values, kStride, row, 16 * c);
        }
      const T *const query_tile = queries + now * kTile, *const diff_tile = diffs + now * kTile;
      for (int n = 0; n < N && from + n < length; n += 16) {
        if (own >= length || (a.causal && from + n + 15 < own)) continue; // no query uses any key of the warp
        const bool all = from + n + 16 <= length && (!a.causal || from + n >= own + 15);
        float s[2][4] = {}, ds[2][4] = {};
        uint32_t b[4], left[4];
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
          const int held = kHeld ? c : 0;
          if (!kHeld) load_a(key[held], keys, kStride, row, 16 * c);
          load_b_of_rows(b, query_tile, kStride, n, 16 * c);
          multiply_pair<T>(s[0], s[1], key[held], b);
          if (!kHeld) load_a(value[held], values, kStride, row, 16 * c);
          load_b_of_rows(b, diff_tile, kStride, n, 16 * c);
          multiply_pair<T>(ds[0], ds[1], value[held], b);
        }
        const unsigned kept = a.ids ? draw.of_keys(from + n, own) : 0xffu;
#pragma unroll
        for (int e = 0; e < 8; e++) {
          const int column = n + e / 4 * 8 + lane_column() + e % 2, i = from + column,
                    j = own + lane_row() + e / 2 % 2 * 8;
          differentiate(s[e / 4][e % 4], ds[e / 4][e % 4], scale, lses[now * N + column] * kLog2E,
                        inners[now * N + column], all || (i < length && (!a.causal || j <= i)), kept >> e & 1, factor);
        }
        as_a<T>(left, s[0], s[1]);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
          load_b(b, diff_tile, kStride, n, 16 * c);
          multiply_pair<T>(dv[2 * c], dv[2 * c + 1], left, b);
        }
        as_a<T>(left, ds[0], ds[1]);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
          load_b(b, query_tile, kStride, n, 16 * c);
          multiply_pair<T>(dk[2 * c], dk[2 * c + 1], left, b);
        }
      }
      __syncthreads(); // the next copies overwrite these tiles
    }
  }
  const float by_scale[2] = {a.scale, a.scale}, by_one[2] = {1, 1};
  const int t = static_cast<int>(a.t);
  write<D>(dk, by_scale, keys + row * kStride, diff_k + of_kv, a.kv_stride, own, length, t, d, packs);
  write<D>(dv, by_one, values + row * kStride, diff_v + of_kv, a.kv_stride, own, length, t, d, packs);
}

template <int D, class T>
__global__ void __launch_bounds__(kBlock)
    diff_queries(Heads a, bool packs, const T *diff, const float *lse, const float *inner, const T *q, const T *k,
                 const T *v, T *diff_q) {
  using S = Sizes<D>;
  constexpr int N = S::others, kStride = S::stride, kTile = N * kStride;
  T *const queries = reinterpret_cast<T *>(dynamic_shared()), *const diffs = queries + S::own * kStride,
           *const keys = diffs + S::own * kStride, *const values = keys + 2 * kTile;
  const TileOrigin p(a, S::own);
  const Draw draw(a, p);
  const int first = static_cast<int>(p.first), length = static_cast<int>(p.length), d = static_cast<int>(a.d);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, own = first + row; // the warp's first query
  // Returns the number of keys that query i uses.
  const auto seen = [&](int i) { return a.causal && i + 1 < length ? i + 1 : length; };
  const int end = first < length ? seen(first + S::own - 1) : 0;
  const int most_seen = own < length ? seen(own + 15) : 0, least_seen = seen(own);
  const int64_t at = p.at(a, a.stride), of_kv = p.of_kv(a);
  const float scale = a.scale * kLog2E, factor = a.ids ? a.factor : 1;
  uint32_t query[D / 16][4], diff_row[D / 16][4];
  float dq[D / 8][4] = {}, lses[2] = {}, inners[2] = {};
  for (int half = 0; half < 2; half++) {
    const int i = own + lane_row() + 8 * half;
    if (i >= length) continue;
    lses[half] = lse[p.row(a, i)] * kLog2E;
    inners[half] = inner[p.row(a, i)];
  }
  const auto copy = [&](int from, int to) {
    begin_copy<N, D>(keys + to * kTile, k + of_kv, a.kv_stride, from, length, d, packs);
    begin_copy<N, D>(values + to * kTile, v + of_kv, a.kv_stride, from, length, d, packs);
  };
  if (end > 0) {
    begin_copy<S::own, D>(queries, q + at, a.stride, first, length, d, packs);
    begin_copy<S::own, D>(diffs, diff + p.at(a, a.c), a.c, first, length, d, packs);
    copy(0, 0);
    end_copies();
  }
  for (int from = 0, now = 0; from < end; from += N, now = 1 - now) {
    if (from + N < end) copy(from + N, 1 - now);
    end_copies();
    await_copies<1>();
    __syncthreads();
    if (from == 0)
#pragma unroll
      for (int c = 0; c < D / 16; c++) {
        load_a(query[c], queries, kStride, row, 16 * c);
        load_a(diff_row[c], diffs, kStride, row, 16 * c);
      }
    const T *const key_tile = keys + now * kTile, *const value_tile = values + now * kTile;
    for (int n = 0; n < N && from + n < most_seen; n += 16) {
      const bool all = from + n + 16 <= least_seen;
      float s[2][4] = {}, ds[2][4] = {};
      uint32_t b[4], left[4];
#pragma unroll
      for (int c = 0; c < D / 16; c++) {
        load_b_of_rows(b, key_tile, kStride, n, 16 * c);
        multiply_pair<T>(s[0], s[1], query[c], b);
        load_b_of_rows(b, value_tile, kStride, n, 16 * c);
        multiply_pair<T>(ds[0], ds[1], diff_row[c], b);
      }
      unsigned kept = 0xffu;
      if (a.ids) kept = draw.of_queries(own, from + n) | draw.of_queries(own, from + n + 8) << 4;
#pragma unroll
      for (int e = 0; e < 8; e++) {
        const int half = e / 2 % 2, i = own + lane_row() + 8 * half, j = from + n + e / 4 * 8 + lane_column() + e % 2;
        differentiate(s[e / 4][e % 4], ds[e / 4][e % 4], scale, lses[half], inners[half],
                      all || (i < length && j < seen(i)), kept >> e & 1, factor);
      }
      as_a<T>(left, ds[0], ds[1]);
#pragma unroll
      for (int c = 0; c < D / 16; c++) {
        load_b(b, key_tile, kStride, n, 16 * c);
        multiply_pair<T>(dq[2 * c], dq[2 * c + 1], left, b);
      }
    }
    __syncthreads(); // the next copies overwrite these tiles
  }
  const float by_scale[2] = {a.scale, a.scale};
  write<D>(dq, by_scale, queries + row * kStride, diff_q + at, a.stride, own, length, static_cast<int>(a.t), d, packs);
}

bool has_tensor_cores() {
  const cudaDeviceProp facts = device_facts();
  return facts.major * 10 + facts.minor >= kTensorArch;
}

// Calls body with the element type and D. Returns nullptr if these kernels do not support the type.
template <class Body> std::unique_ptr<Kernel> sized(const AttentionShape &s, Body body) {
  using std::integral_constant;
  const ht_spec &q = s.specs.in[s.first];
  if (q.dtype == HT_F32 || !has_tensor_cores()) return nullptr;
  return with_float(q, [&](auto type) -> std::unique_ptr<Kernel> {
    if constexpr (sizeof type == 2)
      return s.heads.d <= 64 ? body(type, integral_constant<int, 64>{}) : body(type, integral_constant<int, 128>{});
    else
      return nullptr;
  });
}

} // namespace

std::unique_ptr<Kernel> make_tensor_attention(const AttentionShape &s) {
  return sized(s, [&](auto type, auto channels) -> std::unique_ptr<Kernel> {
    using T = decltype(type);
    constexpr int D = decltype(channels)::value;
    return launcher(s.specs, [s](const Args &x) {
      const Heads a = s.with(x);
      const auto *q = s.part<const T>(x.in, 0), *k = s.part<const T>(x.in, 1), *v = s.part<const T>(x.in, 2);
      const bool packs = a.d % 8 == 0 && aligned({q, k, v, x.out[0]});
      launch(attend<D, T>, s.grid(Sizes<D>::queries, kBlock, Sizes<D>::forward_bytes), x.queue, a, packs, q, k, v,
             static_cast<T *>(x.out[0]), static_cast<float *>(x.out[1]));
    });
  });
}

std::unique_ptr<Kernel> make_tensor_attention_diff(const AttentionShape &s) {
  return sized(s, [&](auto type, auto channels) -> std::unique_ptr<Kernel> {
    using T = decltype(type);
    constexpr int D = decltype(channels)::value;
    return launcher(s.specs, [s](const Args &x) {
      const Heads a = s.with(x);
      const auto *diff = static_cast<const T *>(x.in[0]), *dst = static_cast<const T *>(x.in[1]);
      const auto *lse = static_cast<const float *>(x.in[2]);
      auto *inner = static_cast<float *>(x.workspace);
      const auto *q = s.part<const T>(x.in + s.first, 0), *k = s.part<const T>(x.in + s.first, 1),
                 *v = s.part<const T>(x.in + s.first, 2);
      auto *diff_q = s.part<T>(x.out, 0), *diff_k = s.part<T>(x.out, 1), *diff_v = s.part<T>(x.out, 2);
      const bool packs = a.d % 8 == 0 && aligned({diff, q, k, v, diff_q, diff_k, diff_v});
      constexpr int kRows = Sizes<D>::own, kBytes = Sizes<D>::backward_bytes;
      launch_inner_products(a, diff, dst, inner, x.queue);
      launch(diff_keys<D, T>, s.grid(kRows, kBlock, kBytes, true), x.queue, a, packs, diff, lse, inner, q, k, v, diff_k,
             diff_v);
      launch(diff_queries<D, T>, s.grid(kRows, kBlock, kBytes), x.queue, a, packs, diff, lse, inner, q, k, v, diff_q);
    });
  });
}

} // namespace hetero
