// bias_gelu.cu: dst = gelu(src + bias) on rows of C channels, and its gradients. The sum is not rounded before the
// function. diff_bias is a sum, in two stages (pieces.h), of the gradients before rounding.
#include "gelu.h"
#include "gpu.h"
#include "ops.h"
#include "pieces.h"

namespace hetero {
namespace {

template <int V, class T>
__global__ void bias_gelu(int64_t rows, int64_t channels, bool by_tanh, const T *src, const float *bias, T *dst) {
  const int64_t packs = channels / V;
  float x[V], b[V];
  for (int64_t i = first_index(); i < rows * packs; i += index_stride()) {
    load_row<V>(src, i * V, x);
    load_row<V>(bias, i % packs * V, b);
    for (int v = 0; v < V; v++) x[v] = gelu(by_tanh, x[v] + b[v]);
    store_row<V>(dst, i * V, x);
  }
}

// dst = diff·gelu'(src + bias), and partial (pieces, C): sums of these gradients over the rows of a piece. A thread
// computes V adjacent columns of every kThreads/32nd row.
template <int V, class T>
__global__ void bias_gelu_diff(int64_t rows, int64_t channels, bool by_tanh, const T *diff, const T *src,
                               const float *bias, T *dst, float *partial) {
  __shared__ float part[kThreads][V];
  const int self = static_cast<int>(threadIdx.x);
  const int64_t column = (int64_t{blockIdx.x} * kColumns + self % kColumns) * V, piece = blockIdx.y, pieces = gridDim.y;
  float sum[V] = {};
  if (column < channels) {
    float d[V], x[V], b[V];
    load_row<V>(bias, column, b);
    for (int64_t r = rows * piece / pieces + self / kColumns; r < rows * (piece + 1) / pieces;
         r += kThreads / kColumns) {
      const int64_t i = r * channels + column;
      load_row<V>(diff, i, d);
      load_row<V>(src, i, x);
      for (int v = 0; v < V; v++) {
        d[v] *= gelu_derivative(by_tanh, x[v] + b[v]);
        sum[v] += d[v];
      }
      store_row<V>(dst, i, d);
    }
  }
  for (int v = 0; v < V; v++) part[self][v] = sum[v];
  __syncthreads();
  for (int half = kThreads / 2; half >= kColumns; half /= 2) {
    if (self < half)
      for (int v = 0; v < V; v++) part[self][v] += part[self + half][v];
    __syncthreads();
  }
  if (self < kColumns && column < channels)
    for (int v = 0; v < V; v++) partial[piece * channels + column + v] = part[self][v];
}

bool is_tanh(const Request &request) {
  const int func = static_cast<const ht_elementwise_params *>(request.params)->func;
  if (func != HT_GELU && func != HT_GELU_TANH)
    throw Invalid("function: got " + std::to_string(func) + ", want " + std::to_string(HT_GELU) + " (GELU) or " +
                  std::to_string(HT_GELU_TANH) + " (GELU with tanh)");
  return func == HT_GELU_TANH;
}

} // namespace

std::unique_ptr<Kernel> make_bias_gelu(const Request &request) {
  const bool by_tanh = is_tanh(request);
  Specced k;
  take_plain(k, request);
  want_f32(k.in[1]);
  k.inplace = {{0, 0}};
  const int64_t channels = k.in[0].dims[k.in[0].ndim - 1], rows = elements(k.in[0]) / channels;
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [=](const Args &x) {
      constexpr int V = Pack<T>::size;
      const bool wide = channels % V == 0 && aligned({x.in[0], x.in[1], x.out[0]});
      launch(wide ? bias_gelu<V, T> : bias_gelu<1, T>, over(rows * channels / (wide ? V : 1)), x.queue, rows, channels,
             by_tanh, static_cast<const T *>(x.in[0]), static_cast<const float *>(x.in[1]), static_cast<T *>(x.out[0]));
    });
  });
}

std::unique_ptr<Kernel> make_bias_gelu_diff(const Request &request) {
  const bool by_tanh = is_tanh(request);
  Specced k;
  take_plain(k, request);
  want_f32(k.in[2]);
  k.inplace = {{0, 0}, {0, 1}};
  const int64_t channels = k.in[0].dims[k.in[0].ndim - 1], rows = elements(k.in[0]) / channels;
  const int64_t pieces = pieces_of(rows);
  k.workspace = pieces * channels * int64_t{sizeof(float)};
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [=](const Args &x) {
      constexpr int V = Pack<T>::size;
      const bool wide = channels % V == 0 && aligned({x.in[0], x.in[1], x.in[2], x.out[0]});
      const int64_t across = kColumns * int64_t{wide ? V : 1};
      auto *partial = static_cast<float *>(x.workspace);
      launch(wide ? bias_gelu_diff<V, T> : bias_gelu_diff<1, T>, Grid{(channels + across - 1) / across, pieces},
             x.queue, rows, channels, by_tanh, static_cast<const T *>(x.in[0]), static_cast<const T *>(x.in[1]),
             static_cast<const float *>(x.in[2]), static_cast<T *>(x.out[0]), partial);
      add_pieces(pieces, channels, channels, partial, static_cast<float *>(x.out[1]), x.queue);
    });
  });
}

} // namespace hetero
