// channels.cu
#include "channels.h"

#include "gpu.h"

namespace hetero {
namespace {

// A thread writes kWidth neighbours of dst at once.
template <class From, class To, int kWidth>
__global__ void fit(Block src, const From *from, Block dst, To *to, const float *bias) {
  const int64_t pieces = dst.a * dst.b * dst.c / kWidth;
  for (int64_t i = first_index(); i < pieces; i += index_stride()) {
    const int64_t c = i * kWidth % dst.c, row = i * kWidth / dst.c, b = row % dst.b, a = row / dst.b;
    const bool inside = a < src.a && b < src.b;
    const From *line = from + (a * src.b + b) * src.c;
    struct alignas(sizeof(To) * kWidth) {
      To v[kWidth];
    } out;
    for (int k = 0; k < kWidth; k++) {
      float v = inside && c + k < src.c ? load(line + c + k) : 0;
      if (bias) v += bias[dst.channels_last ? c + k : b];
      store(&out.v[k], v);
    }
    *reinterpret_cast<decltype(out) *>(to + i * kWidth) = out;
  }
}

// Where channel ch of position row lies; positions are all but the channel.
__device__ int64_t at(const Block &b, int64_t row, int64_t ch) {
  return b.channels_last ? row * b.c + ch : (row / b.c * b.b + ch) * b.c + row % b.c;
}

__host__ __device__ int64_t positions(const Block &b) { return b.a * (b.channels_last ? b.b : b.c); }

// Positions are cut into chunks: the sum of each, then the sum of the sums.
constexpr int64_t kLeast = 64, kMostChunks = 512;
int64_t chunks_of(const Block &b) {
  const int64_t n = (positions(b) + kLeast - 1) / kLeast;
  return n < kMostChunks ? n : kMostChunks;
}

template <class T> __global__ void sum_chunks(Block src, int64_t chunks, const T *from, float *partial) {
  const int64_t ch = first_index(), channels = src.channels_last ? src.c : src.b, all = positions(src);
  if (ch >= channels) return;
  const int64_t length = (all + chunks - 1) / chunks, chunk = blockIdx.y;
  const int64_t begin = chunk * length, end = begin + length < all ? begin + length : all;
  float sum = 0;
  for (int64_t row = begin; row < end; row++) sum += load(from + at(src, row, ch));
  partial[chunk * channels + ch] = sum;
}

__global__ void sum_partials(int64_t channels, int64_t chunks, const float *partial, float *sums) {
  const int64_t ch = first_index();
  if (ch >= channels) return;
  double sum = 0;
  for (int64_t i = 0; i < chunks; i++) sum += static_cast<double>(partial[i * channels + ch]);
  sums[ch] = static_cast<float>(sum);
}

ht_spec typed(const Block &b) { return make_spec(b.dtype, {b.a, b.b, b.c}); }

Grid a_thread_each(int64_t n, int64_t rows) { return {(n + kThreads - 1) / kThreads, rows}; }

} // namespace

void refit(const Block &src, const void *from, const Block &dst, void *to, const float *bias, void *queue) {
  with_float(typed(src), [&](auto f) {
    with_float(typed(dst), [&](auto t) {
      using From = decltype(f);
      using To = decltype(t);
      constexpr int kWide = 16 / sizeof(To);
      const int64_t n = dst.a * dst.b * dst.c;
      const bool wide = dst.c % kWide == 0 && aligned({to});
      launch(wide ? fit<From, To, kWide> : fit<From, To, 1>, over(wide ? n / kWide : n), queue, src,
             static_cast<const From *>(from), dst, static_cast<To *>(to), bias);
    });
  });
}

int64_t channel_sums_workspace(const Block &src) { return (chunks_of(src) * src.channels() * 4 + 15) / 16 * 16; }

void channel_sums(const Block &src, const void *from, float *sums, void *partial, void *queue) {
  const int64_t chunks = chunks_of(src);
  with_float(typed(src), [&](auto t) {
    using T = decltype(t);
    launch(sum_chunks<T>, a_thread_each(src.channels(), chunks), queue, src, chunks, static_cast<const T *>(from),
           static_cast<float *>(partial));
  });
  launch(sum_partials, a_thread_each(src.channels(), 1), queue, src.channels(), chunks,
         static_cast<const float *>(partial), sums);
}

} // namespace hetero
