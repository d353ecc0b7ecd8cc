// attention_step.cu: attention of the next position of each sample, with cached keys and values.
//
// A block computes one head of one sample. It loops over tiles of kKeys keys with an online softmax (attention.cu). For
// each tile, a thread computes the score of one key. Then it adds the weighted values of the tile to the sums of its
// channels. The query's own key is the last key.
#include <cmath>

#include "gpu.h"
#include "ops.h"
#include "warp.h"

namespace hetero {
namespace {

constexpr int kBlock = 128;     // threads
constexpr int kKeys = 128;      // keys of a tile
constexpr int kMostHead = 1024; // largest number of channels of a head; a block has them in shared memory
constexpr int kWarps = kBlock / 32;

struct Cache {
  int64_t t, c, d, heads, group, row; // group: heads of q for each head of k and v; row: channels of k and v
  float scale;
};

// Combines v of all threads of the block by a maximum or a sum, and returns the result in every thread. scratch has
// kWarps elements.
template <class Combine> __device__ float over_block(float v, float *scratch, Combine combine) {
  const int self = static_cast<int>(threadIdx.x);
  for (int step = 16; step > 0; step /= 2) v = combine(v, __shfl_xor_sync(kAll, v, step));
  __syncthreads();
  if (self % 32 == 0) scratch[self / 32] = v;
  __syncthreads();
  v = scratch[0];
  for (int w = 1; w < kWarps; w++) v = combine(v, scratch[w]);
  return v;
}

template <class T>
__global__ void attend_next(Cache a, const T *q, const T *own_k, const T *own_v, const T *past_k, const T *past_v,
                            const int32_t *lengths, T *dst) {
  __shared__ float query[kMostHead], sums[kMostHead], weights[kKeys], scratch[kWarps];
  const int self = static_cast<int>(threadIdx.x);
  const int64_t n = blockIdx.x / a.heads, h = blockIdx.x % a.heads;
  const int64_t used = lengths[n] < 0 ? 0 : lengths[n] < a.t ? lengths[n] : a.t;
  const int64_t own = n * a.row + h / a.group * a.d, cached = n * a.t * a.row + h / a.group * a.d;
  for (int64_t i = self; i < a.d; i += kBlock) {
    query[i] = load(q + n * a.c + h * a.d + i);
    sums[i] = 0;
  }
  float largest = -INFINITY, total = 0;
  for (int64_t from = 0; from <= used; from += kKeys) {
    __syncthreads(); // query is complete, and no thread reads the weights of the previous tile any more
    const int64_t count = used + 1 - from < kKeys ? used + 1 - from : kKeys;
    float score = -INFINITY;
    if (self < count) {
      const T *k = from + self < used ? past_k + cached + (from + self) * a.row : own_k + own;
      score = 0;
      for (int64_t i = 0; i < a.d; i++) score = fmaf(query[i], load(k + i), score);
      score *= a.scale;
    }
    const float now = fmaxf(largest, over_block(score, scratch, [](float x, float y) { return fmaxf(x, y); }));
    const float p = self < count ? expf(score - now) : 0, before = expf(largest - now);
    weights[self] = p;
    total = total * before + over_block(p, scratch, [](float x, float y) { return x + y; });
    largest = now;
    for (int64_t i = self; i < a.d; i += kBlock) {
      float sum = sums[i] * before;
      for (int64_t j = 0; j < count; j++) {
        const T *v = from + j < used ? past_v + cached + (from + j) * a.row : own_v + own;
        sum = fmaf(weights[j], load(v + i), sum);
      }
      sums[i] = sum;
    }
  }
  for (int64_t i = self; i < a.d; i += kBlock) store(dst + n * a.c + h * a.d + i, sums[i] / total);
}

} // namespace

std::unique_ptr<Kernel> make_attention_step(const Request &request) {
  Specced k;
  take_plain(k, request);
  const auto &p = *static_cast<const ht_attention_params *>(request.params);
  if (k.in[5].dtype != HT_I32) throw Invalid("lengths: got " + describe(k.in[5]) + ", want i32");
  if (p.heads < 1 || p.kv_heads < 1 || p.heads % p.kv_heads != 0)
    throw Invalid("heads of k and v: got " + std::to_string(p.kv_heads) + " for " + std::to_string(p.heads) +
                  " heads of q");
  Cache a{};
  a.t = k.in[3].dims[1];
  a.c = k.in[0].dims[2];
  a.heads = p.heads;
  a.group = p.heads / p.kv_heads;
  a.d = a.c / a.heads;
  a.row = p.kv_heads * a.d;
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.d)));
  if (a.d > kMostHead)
    throw Unsupported("channels of a head: got " + std::to_string(a.d) + ", want at most " + std::to_string(kMostHead));
  const int64_t blocks = k.in[0].dims[0] * a.heads;
  if (blocks > INT32_MAX)
    throw Unsupported("thread blocks: got " + std::to_string(blocks) + ", want at most 2147483647");
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [=](const Args &x) {
      const auto of = [&](int i) { return static_cast<const T *>(x.in[i]); };
      launch(attend_next<T>, Grid{blocks, 1, 1, kBlock}, x.queue, a, of(0), of(1), of(2), of(3), of(4),
             static_cast<const int32_t *>(x.in[5]), static_cast<T *>(x.out[0]));
    });
  });
}

} // namespace hetero
