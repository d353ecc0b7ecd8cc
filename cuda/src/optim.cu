// optim.cu: the norm of the flat gradient, and the optimizers on the flat parameter buffer.
//
//   sum_squares   partial[i] = sum of x² over chunk i, in f64: 32 chains by position modulo 32, then pairwise sums
//   grad_control  {norm, scale, ok} from the partial sums
//   sgd, adamw    element by element within segments, each with its own decay and rate
//   moving_average  a = a + w·(x - a), in the order of op_optim.go
//
// Every operation is rounded separately, in the order of op_optim.go (this library is compiled without contraction).
// Sums have the order of the CPU device, so results are bit-equal on all devices. Elements outside of all segments stay
// unchanged.
#include <cmath>

#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

const ht_optim_params &params_of(const Request &request) {
  return *static_cast<const ht_optim_params *>(request.params);
}

// A block is one warp. It processes V chunks with 32/V lanes each, and a lane sums V adjacent chains. It prefetches the
// rows of a chunk, so that few threads keep the memory busy.
template <int V>
__global__ void sum_squares(int64_t n, int64_t chunk, int64_t chunks, const float *x, double *partial) {
  constexpr int lanes = 32 / V, rows = 16;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t c = int64_t{blockIdx.x} * V + threadIdx.x / lanes, from = c * chunk < n ? c * chunk : n;
  const int64_t to = from + chunk < n ? from + chunk : n;
  double sum[V] = {};
  float row[rows][V];
  int64_t i = from + lane * V;
  for (; i + 32 * (rows - 1) + V <= to; i += 32 * rows) {
    for (int r = 0; r < rows; r++) load_row<V>(x, i + 32 * r, row[r]);
    for (int r = 0; r < rows; r++)
      for (int v = 0; v < V; v++) sum[v] += static_cast<double>(row[r][v]) * static_cast<double>(row[r][v]);
  }
  for (; i < to; i += 32)
    for (int v = 0; v < V && i + v < to; v++) sum[v] += static_cast<double>(x[i + v]) * static_cast<double>(x[i + v]);
  for (int step = lanes / 2; step > 0; step /= 2)
    for (int v = 0; v < V; v++) sum[v] += __shfl_down_sync(0xffffffffu, sum[v], step);
  for (int half = V / 2; half > 0; half /= 2)
    for (int v = 0; v < half; v++) sum[v] += sum[v + half];
  if (lane == 0 && c < chunks) partial[c] = sum[0];
}

// One thread sums in order; the others load the numbers.
__global__ void grad_control(int64_t n, double max_norm, const double *partial, const float *unscale, float *control) {
  __shared__ double tile[kThreads];
  double sum = 0;
  for (int64_t first = 0; first < n; first += kThreads) {
    const int64_t own = first + threadIdx.x;
    if (own < n) tile[threadIdx.x] = partial[own];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int64_t i = 0; i < kThreads && first + i < n; i++) sum += tile[i];
    __syncthreads();
  }
  if (threadIdx.x > 0) return;
  const double u = *unscale, norm = sqrt(sum) * u;
  control[0] = static_cast<float>(norm);
  control[1] = static_cast<float>(max_norm != 0 && max_norm / norm < 1 ? u * (max_norm / norm) : u);
  control[2] = norm - norm == 0 ? 1.0f : 0.0f;
}

// A run of at most kPiece elements with one decay and one rate. A block processes one piece.
struct Piece {
  int64_t first, count;
  float decay, lr_scale;
};
constexpr int64_t kPiece = 8192;

struct Optimizer {
  Specced specs;
  int64_t pieces;
  Table table;
};

Optimizer optimizer(const Request &request) {
  Specced k;
  take_plain(k, request);
  for (const ht_spec &s : k.in) want_f32(s);
  const ht_optim_params &p = params_of(request);
  const int64_t n = k.in[2].dims[0];
  std::vector<Piece> pieces;
  int64_t end = 0;
  for (int64_t i = 0; i < p.num_segments; i++) {
    const ht_segment &s = p.segments[i];
    if (s.offset < end || s.length < 0 || s.length > n - s.offset)
      throw Invalid("segment of " + std::to_string(s.length) + " elements at " + std::to_string(s.offset) +
                    ": want ascending ranges inside " + std::to_string(n) + " elements");
    end = s.offset + s.length;
    for (int64_t first = s.offset; first < end; first += kPiece)
      pieces.push_back({first, end - first < kPiece ? end - first : kPiece, s.weight_decay, s.lr_scale});
  }
  return {k, static_cast<int64_t>(pieces.size()), Table(pieces)};
}

// Calls body(number, i) for count elements from first on; number is 4 or 1. If wide, the buffers are aligned to 16
// bytes, and body gets 4 elements at a time between multiples of 4. All other elements are passed one by one.
template <class Body> __device__ void each_of(int64_t first, int64_t count, bool wide, Body body) {
  const int64_t end = first + count, own = threadIdx.x;
  const int64_t begin = wide && (first + 3) / 4 * 4 < end ? (first + 3) / 4 * 4 : end,
                rest = begin + (end - begin) / 4 * 4;
  const std::integral_constant<int, 1> one{};
  for (int64_t i = first + own; i < begin; i += blockDim.x) body(one, i);
  for (int64_t i = begin + 4 * own; i < rest; i += 4 * blockDim.x) body(std::integral_constant<int, 4>{}, i);
  for (int64_t i = rest + own; i < end; i += blockDim.x) body(one, i);
}

template <bool has_moment, bool nesterov>
__global__ void sgd(int64_t pieces, const Piece *piece, bool wide, float momentum, const float *hyper,
                    const float *control, float *value, const float *grad, float *moment) {
  if (control[2] == 0) return;
  for (int64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    const Piece s = piece[p];
    const float rate = hyper[0] * s.lr_scale, scale = control[1];
    each_of(s.first, s.count, wide, [&](auto size, int64_t i) {
      constexpr int V = decltype(size)::value;
      float w[V], g[V], m[V] = {};
      load_row<V>(value, i, w);
      load_row<V>(grad, i, g);
      if (has_moment) load_row<V>(moment, i, m);
      for (int v = 0; v < V; v++) {
        g[v] = g[v] * scale;
        g[v] = g[v] + s.decay * w[v];
        m[v] = momentum * m[v] + g[v];
        const float u = nesterov ? g[v] + momentum * m[v] : m[v];
        w[v] = w[v] - rate * u;
      }
      if (has_moment) store_row<V>(moment, i, m);
      store_row<V>(value, i, w);
    });
  }
}

struct Adam {
  float beta1, rest1, beta2, rest2, eps;
};

__global__ void adamw(int64_t pieces, const Piece *piece, bool wide, Adam a, const float *hyper, const float *control,
                      float *value, const float *grad, float *first, float *second) {
  if (control[2] == 0) return;
  for (int64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    const Piece s = piece[p];
    const float decay = hyper[0] * s.lr_scale * s.decay, rate = hyper[1] * s.lr_scale, scale = control[1],
                root2 = hyper[2];
    each_of(s.first, s.count, wide, [&](auto size, int64_t i) {
      constexpr int V = decltype(size)::value;
      float w[V], g[V], m[V], q[V];
      load_row<V>(value, i, w);
      load_row<V>(grad, i, g);
      load_row<V>(first, i, m);
      load_row<V>(second, i, q);
      for (int v = 0; v < V; v++) {
        g[v] = g[v] * scale;
        w[v] = w[v] - decay * w[v];
        m[v] = a.beta1 * m[v] + a.rest1 * g[v];
        q[v] = a.beta2 * q[v] + (a.rest2 * g[v]) * g[v];
        w[v] = w[v] - rate * (m[v] / (sqrtf(q[v]) / root2 + a.eps));
      }
      store_row<V>(first, i, m);
      store_row<V>(second, i, q);
      store_row<V>(value, i, w);
    });
  }
}

// Processes V elements at a time, then the rest one by one.
template <int V>
__global__ void moving_average(int64_t n, const float *weight, const float *control, float *average,
                               const float *value) {
  if (control[2] == 0) return;
  const float w = *weight, rest = 1 - w;
  const auto moved = [=](float a, float x) { return w < 0.5f ? a + w * (x - a) : x - (x - a) * rest; };
  float a[V], x[V];
  for (int64_t i = first_index(); i < n / V; i += index_stride()) {
    load_row<V>(average, i * V, a);
    load_row<V>(value, i * V, x);
    for (int v = 0; v < V; v++) a[v] = moved(a[v], x[v]);
    store_row<V>(average, i * V, a);
  }
  for (int64_t i = n / V * V + first_index(); i < n; i += index_stride()) average[i] = moved(average[i], value[i]);
}

} // namespace

std::unique_ptr<Kernel> make_sum_squares(const Request &request) {
  const int64_t chunk = params_of(request).chunk;
  if (chunk < 1) throw Invalid("chunk: got " + std::to_string(chunk) + ", want at least 1");
  Specced k;
  take_plain(k, request);
  want_f32(k.in[0]);
  const int64_t n = k.in[0].dims[0], chunks = k.out[0].dims[0];
  return launcher(k, [=](const Args &x) {
    const bool wide = chunk % 4 == 0 && aligned({x.in[0]});
    launch(wide ? sum_squares<4> : sum_squares<1>, Grid{wide ? (chunks + 3) / 4 : chunks, 1, 1, 32}, x.queue, n, chunk,
           chunks, static_cast<const float *>(x.in[0]), static_cast<double *>(x.out[0]));
  });
}

std::unique_ptr<Kernel> make_grad_control(const Request &request) {
  const double max_norm = params_of(request).max_norm;
  Specced k;
  take_plain(k, request);
  if (k.in[0].dtype != HT_F64) throw Invalid("partial: got " + describe(k.in[0]) + ", want f64");
  want_f32(k.in[1]);
  const int64_t n = k.in[0].dims[0];
  return launcher(k, [=](const Args &x) {
    launch(grad_control, Grid{1}, x.queue, n, max_norm, static_cast<const double *>(x.in[0]),
           static_cast<const float *>(x.in[1]), static_cast<float *>(x.out[0]));
  });
}

std::unique_ptr<Kernel> make_sgd(const Request &request) {
  const ht_optim_params &p = params_of(request);
  const float momentum = p.momentum;
  auto *kernel = momentum != 0 ? (p.nesterov ? sgd<true, true> : sgd<true, false>)
                               : (p.nesterov ? sgd<false, true> : sgd<false, false>);
  const Optimizer o = optimizer(request);
  return launcher(o.specs, [=, pieces = o.pieces, table = o.table](const Args &x) {
    float *moment = momentum != 0 ? static_cast<float *>(x.out[1]) : nullptr;
    launch(kernel, Grid{pieces < 65535 ? pieces : 65535}, x.queue, pieces, table.as<Piece>(),
           aligned({x.out[0], x.in[3], moment}), momentum, static_cast<const float *>(x.in[0]),
           static_cast<const float *>(x.in[1]), static_cast<float *>(x.out[0]), static_cast<const float *>(x.in[3]),
           moment);
  });
}

std::unique_ptr<Kernel> make_adamw(const Request &request) {
  const ht_optim_params &p = params_of(request);
  const Adam a{p.beta1, 1 - p.beta1, p.beta2, 1 - p.beta2, p.eps};
  const Optimizer o = optimizer(request);
  return launcher(o.specs, [=, pieces = o.pieces, table = o.table](const Args &x) {
    launch(adamw, Grid{pieces < 65535 ? pieces : 65535}, x.queue, pieces, table.as<Piece>(),
           aligned({x.out[0], x.in[3], x.out[1], x.out[2]}), a, static_cast<const float *>(x.in[0]),
           static_cast<const float *>(x.in[1]), static_cast<float *>(x.out[0]), static_cast<const float *>(x.in[3]),
           static_cast<float *>(x.out[1]), static_cast<float *>(x.out[2]));
  });
}

std::unique_ptr<Kernel> make_moving_average(const Request &request) {
  Specced k;
  take_plain(k, request);
  for (const ht_spec &s : k.in) want_f32(s);
  const int64_t n = k.in[2].dims[0];
  return launcher(k, [n](const Args &x) {
    const bool wide = aligned({x.out[0], x.in[3]});
    launch(wide ? moving_average<4> : moving_average<1>, over(wide ? n / 4 + 1 : n), x.queue, n,
           static_cast<const float *>(x.in[0]), static_cast<const float *>(x.in[1]), static_cast<float *>(x.out[0]),
           static_cast<const float *>(x.in[3]));
  });
}

} // namespace hetero
