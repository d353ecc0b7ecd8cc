// dropout.cu: sets elements to zero that a counter-based generator (philox.h) selects. Every kind of device selects the
// same elements.
//
// If the sizes permit, a thread processes 16 bytes at a time: adjacent elements, or, in (N, H, W, C) images, adjacent
// channels of four adjacent pixels.
#include <cmath>

#include "gpu.h"
#include "ops.h"
#include "philox.h"

namespace hetero {
namespace {

struct Dropout {
  int64_t samples, size; // size: elements of a sample
  uint64_t threshold;    // round(P·2³²)
  float factor;          // 1/(1-P)
  uint32_t stream;
  // Channels of (N, H, W, C) images; 0: other layouts. The generator numbers the elements of such images in the order
  // (C, H, W), like plain images. It numbers all other elements in memory order.
  int64_t channels;
};

// Returns which of the four elements of a counter dropout keeps, one bit each.
__device__ unsigned stays(const Dropout &d, const uint32_t *key, int64_t sample, int64_t counter) {
  return kept_of(d.threshold, d.stream, key, sample, static_cast<uint32_t>(counter));
}

// For any sizes. A thread processes the four elements of one counter.
template <class T>
__global__ void dropout_each(Dropout d, const T *src, const int64_t *ids, const uint32_t *key, T *dst) {
  const int64_t counters = (d.size + 3) / 4;
  for (int64_t i = first_index(); i < d.samples * counters; i += index_stride()) {
    const int64_t n = i / counters, from = i % counters * 4;
    const unsigned bits = stays(d, key, ids[n], from / 4);
    for (int k = 0; k < 4 && from + k < d.size; k++) {
      int64_t at = from + k;
      if (d.channels) {
        const int64_t pixels = d.size / d.channels;
        at = at % pixels * d.channels + at / pixels;
      }
      at += n * d.size;
      store(dst + at, bits >> k & 1 ? load(src + at) * d.factor : 0);
    }
  }
}

// For elements that are numbered in memory order, if the size of a sample is a multiple of a pack.
template <class T>
__global__ void dropout_packs(Dropout d, const T *src, const int64_t *ids, const uint32_t *key, T *dst) {
  constexpr int V = Pack<T>::size;
  const int64_t packs = d.size / V;
  float x[V];
  for (int64_t i = first_index(); i < d.samples * packs; i += index_stride()) {
    load_row<V>(src, i * V, x);
    const int64_t sample = ids[i / packs], counter = i % packs * (V / 4);
    unsigned bits = 0;
    for (int c = 0; c < V / 4; c++) bits |= stays(d, key, sample, counter + c) << 4 * c;
    for (int v = 0; v < V; v++) x[v] = bits >> v & 1 ? x[v] * d.factor : 0;
    store_row<V>(dst, i * V, x);
  }
}

// For images, if the number of channels is a multiple of a pack, and the number of pixels is a multiple of four.
template <class T>
__global__ void dropout_pixels(Dropout d, const T *src, const int64_t *ids, const uint32_t *key, T *dst) {
  constexpr int V = Pack<T>::size;
  const int64_t packs = d.channels / V, fours = d.size / d.channels / 4;
  float x[4][V];
  for (int64_t i = first_index(); i < d.samples * fours * packs; i += index_stride()) {
    const int64_t c = i % packs * V, four = i / packs % fours, n = i / packs / fours;
    const int64_t at = n * d.size + four * 4 * d.channels + c, sample = ids[n];
    for (int k = 0; k < 4; k++) load_row<V>(src, at + k * d.channels, x[k]);
    unsigned bits = 0;
    for (int v = 0; v < V; v++) bits |= stays(d, key, sample, (c + v) * fours + four) << 4 * v;
    for (int k = 0; k < 4; k++) {
      for (int v = 0; v < V; v++) x[k][v] = bits >> (4 * v + k) & 1 ? x[k][v] * d.factor : 0;
      store_row<V>(dst, at + k * d.channels, x[k]);
    }
  }
}

} // namespace

std::unique_ptr<Kernel> make_dropout(const Request &request) {
  const auto &p = *static_cast<const ht_dropout_params *>(request.params);
  if (!(p.p >= 0 && p.p < 1)) throw Invalid("probability: got " + std::to_string(p.p) + ", want 0 <= p < 1");
  Specced k;
  take_plain(k, request);
  choose_shared_layout(k, request, {0}, {0});
  k.inplace = {{0, 0}};
  const ht_spec &src = k.in[0];
  const Dropout d{src.dims[0],
                  elements(src) / src.dims[0],
                  static_cast<uint64_t>(std::round(p.p * 4294967296.0)),
                  static_cast<float>(1 / (1 - p.p)),
                  p.stream,
                  src.layout == kNhwc ? src.dims[1] : 0};
  return with_float(src, [&](auto type) {
    using T = decltype(type);
    return launcher(k, [d](const Args &x) {
      constexpr int V = Pack<T>::size;
      const bool well = aligned({x.in[0], x.out[0]});
      auto *kernel = dropout_each<T>;
      int64_t threads = d.samples * ((d.size + 3) / 4);
      if (well && !d.channels && d.size % V == 0)
        kernel = dropout_packs<T>, threads = d.samples * d.size / V;
      else if (well && d.channels && d.channels % V == 0 && d.size / d.channels % 4 == 0)
        kernel = dropout_pixels<T>, threads = d.samples * d.size / (4 * V);
      launch(kernel, over(threads), x.queue, d, static_cast<const T *>(x.in[0]), static_cast<const int64_t *>(x.in[1]),
             static_cast<const uint32_t *>(x.in[2]), static_cast<T *>(x.out[0]));
    });
  });
}

} // namespace hetero
