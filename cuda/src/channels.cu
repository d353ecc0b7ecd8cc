// channels.cu
#include "channels.h"

#include "gpu.h"

namespace hetero {
namespace {

// Converts the index of an element of a block to its coordinates.
template <class Int> __device__ void divide(const Block &of, Int at, int64_t &a, int64_t &b, int64_t &c) {
  const Int length = static_cast<Int>(of.c), rows = static_cast<Int>(of.b);
  c = at % length, at /= length;
  b = at % rows, a = at / rows;
}

// Computes V adjacent elements of dst from `at` on. packed states that the V elements of src are also contiguous and
// aligned.
template <int V, class From, class To>
__device__ void fit(const Block &src, const From *from, const Block &dst, To *to, const float *bias, int64_t at,
                    bool packed) {
  int64_t a = 0, b = 0, c = at;
  if (at >= dst.c) { // use 32-bit divisions if possible: 64-bit divisions take longer than the memory accesses
    if (at >> 32)
      divide(dst, at, a, b, c);
    else
      divide(dst, static_cast<uint32_t>(at), a, b, c);
  }
  const bool inside = a < src.a && b < src.b;
  const From *line = from + (a * src.b + b) * src.c;
  float value[V] = {};
  if (packed) {
    if (inside && c < src.c) load_row<V>(line, c, value);
  } else {
    for (int v = 0; v < V; v++)
      if (inside && c + v < src.c) value[v] = load(line + c + v);
  }
  for (int v = 0; v < V; v++)
    if (bias) value[v] += bias[dst.channels_last ? c + v : b];
  store_row<V>(to, at, value);
}

// Computes all of dst: V elements at a time, then the rest one by one.
template <int V, class From, class To>
__global__ void fit_all(Block src, const From *from, Block dst, To *to, const float *bias, bool packed) {
  const int64_t n = dst.a * dst.b * dst.c;
  for (int64_t i = first_index(); i < n / V; i += index_stride()) fit<V>(src, from, dst, to, bias, i * V, packed);
  for (int64_t i = n / V * V + first_index(); i < n; i += index_stride()) fit<1>(src, from, dst, to, bias, i, false);
}

// Returns the offset of channel ch at position `row`. Positions number all combinations of the other coordinates.
__device__ int64_t at(const Block &b, int64_t row, int64_t ch) {
  return b.channels_last ? row * b.c + ch : (row / b.c * b.b + ch) * b.c + row % b.c;
}

__host__ __device__ int64_t positions(const Block &b) { return b.a * (b.channels_last ? b.b : b.c); }

// There is one chunk of positions per kLeast positions, but there are at most kMostChunks chunks. The first kernel sums
// each chunk, and the second kernel adds the sums of the chunks.
constexpr int64_t kLeast = 64, kMostChunks = 512;
int64_t chunks_of(const Block &b) {
  const int64_t n = (positions(b) + kLeast - 1) / kLeast;
  return n < kMostChunks ? n : kMostChunks;
}

// A thread sums V channels of a chunk.
template <int V, class T> __global__ void sum_chunks(Block src, int64_t chunks, const T *from, float *partial) {
  const int64_t i = first_index(), channels = src.channels_last ? src.c : src.b, pieces = channels / V;
  if (i >= chunks * pieces) return;
  const int64_t ch = i % pieces * V, chunk = i / pieces, all = positions(src);
  const int64_t length = (all + chunks - 1) / chunks;
  const int64_t begin = chunk * length, end = begin + length < all ? begin + length : all;
  float sum[V] = {}, value[V];
  for (int64_t row = begin; row < end; row++) {
    load_row<V>(from, at(src, row, ch), value);
    for (int v = 0; v < V; v++) sum[v] += value[v];
  }
  store_row<V>(partial, chunk * channels + ch, sum);
}

__global__ void sum_partials(int64_t channels, int64_t chunks, const float *partial, float *sums) {
  const int64_t ch = first_index();
  if (ch >= channels) return;
  double sum = 0;
  for (int64_t i = 0; i < chunks; i++) sum += static_cast<double>(partial[i * channels + ch]);
  sums[ch] = static_cast<float>(sum);
}

ht_spec typed(const Block &b) { return make_spec(b.dtype, {b.a, b.b, b.c}); }

Grid a_thread_each(int64_t n) { return {(n + kThreads - 1) / kThreads}; }

void launch_fit(const Block &src, const void *from, const Block &dst, void *to, const float *bias, void *queue) {
  with_float(typed(src), [&](auto f) {
    with_float(typed(dst), [&](auto t) {
      using From = decltype(f);
      using To = decltype(t);
      constexpr int most = Pack<To>::size;
      const int64_t n = dst.a * dst.b * dst.c;
      // If there is only one row, its last pack may be incomplete.
      const bool one = dst.a * dst.b == 1 && src.a * src.b == 1 && src.c == dst.c;
      const bool wide = (one || dst.c % most == 0) && aligned({to});
      const bool packed = wide && (one || src.c % most == 0) && aligned({from});
      launch(wide ? fit_all<most, From, To> : fit_all<1, From, To>, over(wide ? n / most + 1 : n), queue, src,
             static_cast<const From *>(from), dst, static_cast<To *>(to), bias, packed);
    });
  });
}

} // namespace

void refit(const Block &src, const void *from, const Block &dst, void *to, const float *bias, void *queue) {
  if (!bias && src.a == dst.a && src.b == dst.b && src.c == dst.c)
    cast(dst.a * dst.b * dst.c, src.dtype, from, dst.dtype, to, queue);
  else
    launch_fit(src, from, dst, to, bias, queue);
}

void cast(int64_t n, int32_t src_dtype, const void *from, int32_t dst_dtype, void *to, void *queue) {
  launch_fit({src_dtype, 1, 1, n, true}, from, {dst_dtype, 1, 1, n, true}, to, nullptr, queue);
}

int64_t channel_sums_workspace(const Block &src) { return (chunks_of(src) * src.channels() * 4 + 15) / 16 * 16; }

void channel_sums(const Block &src, const void *from, float *sums, void *partial, void *queue) {
  const int64_t chunks = chunks_of(src);
  with_float(typed(src), [&](auto t) {
    using T = decltype(t);
    constexpr int most = Pack<T>::size;
    const bool wide = src.channels_last && src.c % most == 0 && aligned({from, partial});
    launch(wide ? sum_chunks<most, T> : sum_chunks<1, T>, a_thread_each(chunks * src.channels() / (wide ? most : 1)),
           queue, src, chunks, static_cast<const T *>(from), static_cast<float *>(partial));
  });
  launch(sum_partials, a_thread_each(src.channels()), queue, src.channels(), chunks,
         static_cast<const float *>(partial), sums);
}

} // namespace hetero
