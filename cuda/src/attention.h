// attention.h: operands of the kernels of attention (attention.cu, attention_tensor.cu).
#pragma once

#include <cmath>

#include "gpu.h"
#include "operands.h"

namespace hetero {

constexpr int kMostChannels = 128; // channels of a head; more do not fit into shared memory

// The shape of an attention op, and its operands that all kernels read:
//
//   n, t, c     samples, positions (rows) of a sample, channels of q
//   d           channels of a head
//   stride      elements from one row of q to the next
//   kv_stride   elements from one row of k to the next, and of v
//   heads       heads of q
//   shared      heads of k and v
//   group       heads of q that use the same head of k and v: heads / shared
//   scale       scores are q·k·scale
//   stream, threshold, factor, ids, key   dropout: see philox.h
struct Heads {
  int64_t n, t, c, d, stride, kv_stride;
  int heads, shared, group;
  bool causal;
  uint32_t stream;
  float scale, factor;
  uint64_t threshold;
  const int32_t *lengths; // valid rows of each sample; nullptr: all rows
  const int64_t *ids;     // nullptr: no dropout
  const uint32_t *key;
};

// The tile of a block: rows from `first` on of head h of sample n. length is the number of valid rows of the sample. h
// is a head of q; a tile of keys starts with the first head of q that uses these keys.
struct TileOrigin {
  int64_t n, h, first, length;

  // In a causal op, a later tile of queries uses more keys, and an earlier tile of keys is used by more queries. Blocks
  // with more work start first, so that the last blocks to run are short.
  __device__ TileOrigin(const Heads &a, int rows, bool of_keys = false) {
    const int64_t tiles = (a.t + rows - 1) / rows, b = blockIdx.x;
    first = (of_keys ? b % tiles : tiles - 1 - b % tiles) * rows;
    const int64_t heads = of_keys ? a.shared : a.heads;
    h = b / tiles % heads * (of_keys ? a.group : 1);
    n = b / tiles / heads;
    length = a.t;
    if (!a.lengths) return;
    length = a.lengths[n] < 0 ? 0 : a.lengths[n] < a.t ? a.lengths[n] : a.t;
  }
  __device__ int64_t keys(const Heads &a, int64_t i) const { return a.causal && i + 1 < length ? i + 1 : length; }
  // Returns the offset of head h in the first row of sample n. of_kv returns the offset of the key/value head that h
  // uses.
  __device__ int64_t at(const Heads &a, int64_t stride) const { return n * a.t * stride + h * a.d; }
  __device__ int64_t of_kv(const Heads &a) const { return n * a.t * a.kv_stride + h / a.group * a.d; }
  // Returns the index of row i in lse and inner, (N, heads, T).
  __device__ int64_t row(const Heads &a, int64_t i) const { return (n * a.heads + h) * a.t + i; }
};

// The operands of an attention op. `before` is the number of inputs that precede q.
struct AttentionShape {
  Specced specs;
  Heads heads{};
  bool packed;
  size_t first, lengths = 0, ids = 0; // positions in the inputs; 0: none

  AttentionShape(const Request &request, size_t before) : first(before) {
    const auto &p = *static_cast<const ht_attention_params *>(request.params);
    take_plain(specs, request);
    packed = p.packed;
    const size_t sources = packed ? 1 : 3, wanted = first + sources + (p.lengths ? 1 : 0) + (p.p > 0 ? 2 : 0);
    if (!(p.p >= 0 && p.p < 1)) throw Invalid("probability: got " + std::to_string(p.p) + ", want 0 <= p < 1");
    want_operands(request, wanted, first ? sources : 2);
    const ht_spec &q = specs.in[first];
    Heads &a = heads;
    a.n = q.dims[0];
    a.t = q.dims[1];
    a.stride = q.dims[2];
    a.c = packed ? a.stride / 3 : a.stride;
    a.heads = p.heads;
    a.shared = p.kv_heads;
    if (a.heads < 1 || a.shared < 1 || a.heads % a.shared != 0 || (packed && a.heads != a.shared))
      throw Invalid("heads of k and v: got " + std::to_string(a.shared) + " for " + std::to_string(a.heads) +
                    " heads of q");
    a.group = a.heads / a.shared;
    a.d = a.c / a.heads;
    a.kv_stride = packed ? a.stride : a.shared * a.d;
    if (a.d > kMostChannels)
      throw Unsupported("channels of a head: got " + std::to_string(a.d) + ", want at most " +
                        std::to_string(kMostChannels));
    if (a.n * a.heads * ((a.t + 15) / 16) > INT32_MAX)
      throw Unsupported("thread blocks: got " + std::to_string(a.n * a.heads * ((a.t + 15) / 16)) +
                        ", want at most 2147483647");
    a.causal = p.causal;
    a.stream = p.stream;
    a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.d)));
    if (p.lengths) {
      lengths = first + sources;
      if (specs.in[lengths].dtype != HT_I32)
        throw Invalid("lengths: got " + describe(specs.in[lengths]) + ", want i32");
    }
    if (p.p == 0) return;
    ids = wanted - 2;
    if (specs.in[ids].dtype != HT_I64) throw Invalid("ids: got " + describe(specs.in[ids]) + ", want i64");
    if (specs.in[ids + 1].dtype != HT_U32) throw Invalid("key: got " + describe(specs.in[ids + 1]) + ", want u32");
    a.threshold = static_cast<uint64_t>(std::round(p.p * 4294967296.0));
    a.factor = static_cast<float>(1 / (1 - p.p));
  }

  Heads with(const Args &x) const {
    Heads a = heads;
    if (lengths) a.lengths = static_cast<const int32_t *>(x.in[lengths]);
    if (ids) {
      a.ids = static_cast<const int64_t *>(x.in[ids]);
      a.key = static_cast<const uint32_t *>(x.in[ids + 1]);
    }
    return a;
  }
  // Returns q (which = 0), k (1) or v (2). base has one address if q, k and v are packed, else three.
  template <class T> T *part(void *const *base, int which) const {
    return packed ? static_cast<T *>(base[0]) + which * heads.c : static_cast<T *>(base[which]);
  }
  // Returns the grid with one block for each tile. A tile has `rows` queries of a query head, or `rows` keys of a
  // key/value head.
  Grid grid(int rows, int threads, int shared = 0, bool of_keys = false) const {
    return {heads.n * (of_keys ? heads.shared : heads.heads) * ((heads.t + rows - 1) / rows), 1, 1, threads, shared};
  }
};

// Computes inner (N, heads, T): for each row of each head, the dot product of diff_dst and dst. T is f32, bf16 or f16.
template <class T> void launch_inner_products(const Heads &a, const T *diff, const T *dst, float *inner, void *queue);

// Return the kernels on tensor cores, for 16-bit types. Return nullptr in two cases: the type is f32, whose operands
// TF32 would round, or the GPU's tensor cores do not support the type.
std::unique_ptr<Kernel> make_tensor_attention(const AttentionShape &s);
std::unique_ptr<Kernel> make_tensor_attention_diff(const AttentionShape &s);

} // namespace hetero
