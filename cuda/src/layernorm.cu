// layernorm.cu: LayerNorm of rows of C channels, and its gradients.
//
//   x = src, or src + residual      dst = (x - mean)·inverse·gamma + beta      inverse = 1/sqrt(variance + eps)
//   with x̂ = (x - mean)·inverse and g = diff_dst·gamma:
//   diff_x = inverse·(g - mean(g) - x̂·mean(g·x̂)) + diff_sum  diff_gamma = sum diff_dst·x̂  diff_beta = sum diff_dst
//
// A warp processes a row. It reads the row several times, mostly from the cache. The gradients of gamma and beta are
// sums in two stages (pieces.h).
#include "gpu.h"
#include "ops.h"
#include "pieces.h"
#include "warp.h"

namespace hetero {
namespace {

template <int V, class T>
__global__ void normalize(int64_t rows, int64_t channels, float eps, const T *src, const T *residual,
                          const float *gamma, const float *beta, T *sums, T *dst, float *means, float *inverses) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  float x[V], y[V], z[V];
  for (int64_t r = first_index() / 32; r < rows; r += warps) {
    const int64_t base = r * channels;
    const T *from = residual ? sums : src;
    float sum = 0;
    for (int64_t c = lane * V; c < channels; c += 32 * V) {
      load_row<V>(src, base + c, x);
      if (residual) {
        load_row<V>(residual, base + c, y);
        for (int v = 0; v < V; v++) x[v] += y[v];
        store_row<V>(sums, base + c, x);
        load_row<V>(sums, base + c, x); // use the rounded sum
      }
      for (int v = 0; v < V; v++) sum += x[v];
    }
    const float mean = warp_sum(sum) / static_cast<float>(channels);
    float squares = 0;
    for (int64_t c = lane * V; c < channels; c += 32 * V) {
      load_row<V>(from, base + c, x);
      for (int v = 0; v < V; v++) squares += (x[v] - mean) * (x[v] - mean);
    }
    const float inverse = 1 / sqrtf(warp_sum(squares) / static_cast<float>(channels) + eps);
    for (int64_t c = lane * V; c < channels; c += 32 * V) {
      load_row<V>(from, base + c, x);
      load_row<V>(gamma, c, y);
      load_row<V>(beta, c, z);
      for (int v = 0; v < V; v++) x[v] = (x[v] - mean) * inverse * y[v] + z[v];
      store_row<V>(dst, base + c, x);
    }
    if (lane == 0) {
      means[r] = mean;
      inverses[r] = inverse;
    }
  }
}

template <int V, class T>
__global__ void diff_rows(int64_t rows, int64_t channels, const T *diff, const T *x, const float *means,
                          const float *inverses, const float *gamma, const T *plus, T *dst) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  float d[V], h[V], g[V], p[V] = {};
  for (int64_t r = first_index() / 32; r < rows; r += warps) {
    const int64_t base = r * channels;
    const float mean = means[r], inverse = inverses[r];
    // d becomes g, h becomes x̂.
    auto take = [&](int64_t c) {
      load_row<V>(diff, base + c, d);
      load_row<V>(x, base + c, h);
      load_row<V>(gamma, c, g);
      for (int v = 0; v < V; v++) {
        d[v] *= g[v];
        h[v] = (h[v] - mean) * inverse;
      }
    };
    float sum = 0, product = 0;
    for (int64_t c = lane * V; c < channels; c += 32 * V) {
      take(c);
      for (int v = 0; v < V; v++) {
        sum += d[v];
        product += d[v] * h[v];
      }
    }
    sum = warp_sum(sum) / static_cast<float>(channels);
    product = warp_sum(product) / static_cast<float>(channels);
    for (int64_t c = lane * V; c < channels; c += 32 * V) {
      take(c);
      if (plus) load_row<V>(plus, base + c, p);
      for (int v = 0; v < V; v++) d[v] = inverse * (d[v] - sum - h[v] * product) + p[v];
      store_row<V>(dst, base + c, d);
    }
  }
}

// partial (pieces, 2, C): sums of diff·x̂ and of diff over the rows of a piece. A thread adds V adjacent columns of
// every kThreads/32nd row. It loads kAhead of these rows before it adds them, because few channels mean few threads.
template <int V, class T>
__global__ void diff_params(int64_t rows, int64_t channels, const T *diff, const T *x, const float *means,
                            const float *inverses, float *partial) {
  constexpr int kAhead = 4, kStep = kThreads / kColumns;
  __shared__ float gammas[kThreads][V], betas[kThreads][V];
  const int self = static_cast<int>(threadIdx.x);
  const int64_t column = (int64_t{blockIdx.x} * kColumns + self % kColumns) * V, piece = blockIdx.y, pieces = gridDim.y,
                end = rows * (piece + 1) / pieces;
  float gamma[V] = {}, beta[V] = {}, d[kAhead][V], h[kAhead][V];
  if (column < channels) {
    const auto take = [&](int64_t r, int k) {
      load_row<V>(diff, r * channels + column, d[k]);
      load_row<V>(x, r * channels + column, h[k]);
    };
    const auto add = [&](int64_t r, int k) {
      const float mean = means[r], inverse = inverses[r];
      for (int v = 0; v < V; v++) {
        gamma[v] += d[k][v] * ((h[k][v] - mean) * inverse);
        beta[v] += d[k][v];
      }
    };
    int64_t r = rows * piece / pieces + self / kColumns;
    for (; r + (kAhead - 1) * kStep < end; r += kAhead * kStep) {
      for (int k = 0; k < kAhead; k++) take(r + k * kStep, k);
      for (int k = 0; k < kAhead; k++) add(r + k * kStep, k);
    }
    for (; r < end; r += kStep) take(r, 0), add(r, 0);
  }
  for (int v = 0; v < V; v++) gammas[self][v] = gamma[v], betas[self][v] = beta[v];
  __syncthreads();
  for (int half = kThreads / 2; half >= kColumns; half /= 2) {
    if (self < half)
      for (int v = 0; v < V; v++) {
        gammas[self][v] += gammas[self + half][v];
        betas[self][v] += betas[self + half][v];
      }
    __syncthreads();
  }
  if (self >= kColumns || column >= channels) return;
  for (int v = 0; v < V; v++) {
    partial[2 * piece * channels + column + v] = gammas[self][v];
    partial[(2 * piece + 1) * channels + column + v] = betas[self][v];
  }
}

} // namespace

std::unique_ptr<Kernel> make_layer_norm(const Request &request) {
  const auto p = *static_cast<const ht_layer_norm_params *>(request.params);
  const bool add = p.add;
  want_operands(request, add ? 4 : 3, add ? 4 : 3);
  Specced k;
  take_plain(k, request);
  want_f32(k.in[1]);
  want_f32(k.in[2]);
  if (add) k.inplace = {{3, 0}, {3, 3}};
  const int64_t channels = k.in[0].dims[k.in[0].ndim - 1], rows = elements(k.in[0]) / channels;
  const auto eps = static_cast<float>(p.eps);
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [=](const Args &x) {
      constexpr int V = Pack<T>::size;
      void *residual = add ? x.in[3] : nullptr, *sums = add ? x.out[3] : nullptr;
      const bool wide = channels % V == 0 && aligned({x.in[0], x.in[1], x.in[2], x.out[0], residual, sums});
      launch(wide ? normalize<V, T> : normalize<1, T>, over(rows * 32), x.queue, rows, channels, eps,
             static_cast<const T *>(x.in[0]), static_cast<const T *>(residual), static_cast<const float *>(x.in[1]),
             static_cast<const float *>(x.in[2]), static_cast<T *>(sums), static_cast<T *>(x.out[0]),
             static_cast<float *>(x.out[1]), static_cast<float *>(x.out[2]));
    });
  });
}

std::unique_ptr<Kernel> make_layer_norm_diff(const Request &request) {
  const bool plus = static_cast<const ht_layer_norm_params *>(request.params)->plus;
  want_operands(request, plus ? 6 : 5, 3);
  Specced k;
  take_plain(k, request);
  for (size_t i : {2, 3, 4}) want_f32(k.in[i]);
  k.inplace = {{0, 0}};
  if (plus) k.inplace.push_back({0, 5});
  const int64_t channels = k.in[0].dims[k.in[0].ndim - 1], rows = elements(k.in[0]) / channels;
  const int64_t pieces = pieces_of(rows);
  k.workspace = pieces * 2 * channels * int64_t{sizeof(float)};
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [=](const Args &x) {
      constexpr int V = Pack<T>::size;
      const auto *diff = static_cast<const T *>(x.in[0]), *src = static_cast<const T *>(x.in[1]);
      const auto *means = static_cast<const float *>(x.in[2]), *inverses = static_cast<const float *>(x.in[3]);
      const auto *gamma = static_cast<const float *>(x.in[4]);
      const auto *other = static_cast<const T *>(plus ? x.in[5] : nullptr);
      auto *partial = static_cast<float *>(x.workspace);
      // diff_params runs first, because diff_x may have diff_dst's memory.
      const bool wide = channels % V == 0 && aligned({diff, src, gamma, other, x.out[0]});
      const int64_t across = kColumns * int64_t{wide ? V : 1};
      launch(wide ? diff_params<V, T> : diff_params<1, T>, Grid{(channels + across - 1) / across, pieces}, x.queue,
             rows, channels, diff, src, means, inverses, partial);
      add_pieces(pieces, 2 * channels, channels, partial, static_cast<float *>(x.out[1]), x.queue);
      add_pieces(pieces, 2 * channels, channels, partial + channels, static_cast<float *>(x.out[2]), x.queue);
      launch(wide ? diff_rows<V, T> : diff_rows<1, T>, over(rows * 32), x.queue, rows, channels, diff, src, means,
             inverses, gamma, other, static_cast<T *>(x.out[0]));
    });
  });
}

} // namespace hetero
