// attention.h: code that the attention kernels share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "images.h"
#include "kernel.h"
#include "layout.h"
#include "simd_table.h"

namespace hetero {

// Return the kernels that use the tiles of pair_product.h. Return nullptr if these do not support the request.
std::unique_ptr<Kernel> make_pair_attention(const Request &request);
std::unique_ptr<Kernel> make_pair_attention_diff(const Request &request);

struct AttentionKernel : Kernel {
  ht_attention_params p;
  // Sizes:
  //
  //   n, t, c     samples, positions, channels of q
  //   d, dp       channels of a head; d rounded up for the padding of rows
  //   heads       heads of q
  //   shared      heads of k and v
  //   group       heads of q for each head of k and v
  //   size        bytes of an element
  //   sources     number of operands that contain q, k and v: 1 if they are packed, else 3
  //   parts       number of parts of the work, each for one thread
  //   stride      elements from one row of q to the next
  //   kv_stride   elements from one row of k to the next, and of v
  bool bf16;
  int64_t n, t, c, d, dp, heads, size, sources, parts;
  int64_t shared, group, stride, kv_stride;
  size_t first; // index of q among the inputs
  float scale, factor = 1;
  uint64_t threshold = 0;

  AttentionKernel(const Request &request, size_t before, int64_t threads)
      : p(*static_cast<const ht_attention_params *>(request.params)), parts(threads), first(before) {
    take_plain(*this, request);
    const ht_spec &q = in.at(first);
    bf16 = is_bf16(q);
    n = q.dims[0];
    t = q.dims[1];
    stride = q.dims[2];
    sources = p.packed ? 1 : 3;
    c = p.packed ? stride / 3 : stride;
    heads = p.heads;
    shared = p.kv_heads;
    if (heads < 1 || shared < 1 || heads % shared != 0 || (p.packed && heads != shared))
      throw Invalid("heads of k and v: got " + std::to_string(shared) + " for " + std::to_string(heads) +
                    " heads of q");
    group = heads / shared;
    d = c / heads;
    kv_stride = p.packed ? stride : shared * d;
    dp = (d + 31) / 32 * 32;
    size = dtype_size(q.dtype);
    scale = float(1 / std::sqrt(double(d)));
    const size_t wanted = first + size_t(sources) + (p.lengths ? 1 : 0) + (p.p > 0 ? 2 : 0);
    want_operands(request, wanted, request.out.size());
    if (p.lengths && in[first + size_t(sources)].dtype != HT_I32)
      throw Invalid("lengths: got " + describe(in[first + size_t(sources)]) + ", want i32");
    if (p.p > 0) {
      threshold = uint64_t(std::round(p.p * 4294967296.0));
      factor = float(1 / (1 - p.p));
      if (in[wanted - 2].dtype != HT_I64) throw Invalid("ids: got " + describe(in[wanted - 2]) + ", want i64");
      if (in[wanted - 1].dtype != HT_U32) throw Invalid("key: got " + describe(in[wanted - 1]) + ", want u32");
    }
  }

  // Distance in elements from one row of q (0), k (1) or v (2) to the next row.
  int64_t step(int which) const { return which == 0 ? stride : kv_stride; }

  // The offset in bytes of row i of q, k or v of sample s, for head h of q.
  int64_t offset(int which, int64_t s, int64_t h, int64_t i) const {
    return ((s * t + i) * step(which) + (p.packed ? which * c : 0) + (which == 0 ? h : h / group) * d) * size;
  }
  const char *source(const Args &a, int which, int64_t s, int64_t h, int64_t i) const {
    const void *base = p.packed ? a.in[first] : a.in[first + size_t(which)];
    return static_cast<const char *>(base) + offset(which, s, h, i);
  }
  char *result(const Args &a, int which, int64_t s, int64_t h, int64_t i) const { // address of a row of a gradient
    return static_cast<char *>(p.packed ? a.out[0] : a.out[which]) + offset(which, s, h, i);
  }

  // Sets the gradients of q to zero, for head h and from row number `from` on. If h is the first head of its group,
  // does the same for k and v.
  void clear(const Args &a, int64_t s, int64_t h, int64_t from) const {
    for (int which = 0; which < (h % group == 0 ? 3 : 1); which++)
      for (int64_t i = from; i < t; i++) std::memset(result(a, which, s, h, i), 0, size_t(d * size));
  }

  int64_t length(const Args &a, int64_t s) const {
    if (!p.lengths) return t;
    return std::clamp<int64_t>(static_cast<const int32_t *>(a.in[first + size_t(sources)])[s], 0, t);
  }

  int64_t keys(int64_t length, int64_t i) const { return p.causal ? std::min(length, i + 1) : length; }

  // Writes one byte for each of `count` keys from key `from` on: 1 if dropout keeps the pair of query i and the key,
  // else 0. `from` is a multiple of 64.
  void keep(const Args &a, int64_t s, int64_t h, int64_t i, int64_t from, int64_t count, uint8_t *to) const {
    const auto *ids = static_cast<const int64_t *>(a.in[in.size() - 2]);
    const auto *key = static_cast<const uint32_t *>(a.in[in.size() - 1]);
    const DropoutSample sample{uint64_t(ids[s]), {key[0], key[1]}, p.stream + uint32_t(h), threshold, factor};
    simd().dropout.keep(sample, i * 65536 + from, count, to);
  }

  // Calls f(task, memory) for all tasks. Each thread processes one part of the tasks. memory is the scratch memory of
  // this part.
  template <class F> void each(const Args &a, int64_t tasks, int64_t bytes, F f) const {
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < parts; part++)
      for (int64_t i = part; i < tasks; i += parts) f(i, static_cast<char *>(a.workspace) + part * bytes);
  }
};

} // namespace hetero
