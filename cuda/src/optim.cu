// optim.cu: the norm of the flat gradient, and the optimizers on the flat parameter buffer.
//
//   sum_squares   partial[i] = sum of x² over chunk i, in f64: 32 chains by position modulo 32, then halves are added to halves
//   grad_control  {norm, scale, ok} from the partial sums
//   sgd, adamw    element by element within segments, each with its own decay and rate
//   moving_average  a = a + w·(x - a), as op_optim.go orders it
//
// Every operation is rounded by itself, in the order of op_optim.go (this library is compiled without contraction), and the sums
// are taken in the order of the CPU device: all devices have the same bits. Elements outside all segments stay as they are.
#include <cmath>

#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

const ht_optim_params &params_of(const Request &request) {
  return *static_cast<const ht_optim_params *>(request.params);
}

// One warp a chunk, one lane a chain.
__global__ void sum_squares(int64_t n, int64_t chunk, int64_t chunks, const float *x, double *partial) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  for (int64_t c = first_index() / 32; c < chunks; c += warps) {
    const int64_t from = c * chunk, to = from + chunk < n ? from + chunk : n;
    double sum = 0;
    for (int64_t i = from + lane; i < to; i += 32) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) partial[c] = sum;
  }
}

__global__ void grad_control(int64_t n, double max_norm, const double *partial, const float *unscale, float *control) {
  if (first_index() > 0) return;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += partial[i];
  const double u = *unscale, norm = sqrt(sum) * u;
  control[0] = static_cast<float>(norm);
  control[1] = static_cast<float>(max_norm != 0 && max_norm / norm < 1 ? u * (max_norm / norm) : u);
  control[2] = norm - norm == 0 ? 1.0f : 0.0f;
}

// A run of elements with one decay and rate, at most kPiece of them: what a block takes.
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

template <bool has_moment, bool nesterov>
__global__ void sgd(int64_t pieces, const Piece *piece, float momentum, const float *hyper, const float *control,
                    float *value, const float *grad, float *moment) {
  if (control[2] == 0) return;
  for (int64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    const Piece s = piece[p];
    const float rate = hyper[0] * s.lr_scale, scale = control[1];
    for (int64_t i = s.first + threadIdx.x; i < s.first + s.count; i += blockDim.x) {
      const float w = value[i];
      float g = grad[i] * scale;
      g = g + s.decay * w;
      const float m = momentum * (has_moment ? moment[i] : 0) + g;
      const float u = nesterov ? g + momentum * m : m;
      if (has_moment) moment[i] = m;
      value[i] = w - rate * u;
    }
  }
}

struct Adam {
  float beta1, rest1, beta2, rest2, eps;
};

__global__ void adamw(int64_t pieces, const Piece *piece, Adam a, const float *hyper, const float *control,
                      float *value, const float *grad, float *first, float *second) {
  if (control[2] == 0) return;
  for (int64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    const Piece s = piece[p];
    const float decay = hyper[0] * s.lr_scale * s.decay, rate = hyper[1] * s.lr_scale, scale = control[1],
                root2 = hyper[2];
    for (int64_t i = s.first + threadIdx.x; i < s.first + s.count; i += blockDim.x) {
      const float g = grad[i] * scale, old = value[i];
      const float w = old - decay * old;
      const float m = a.beta1 * first[i] + a.rest1 * g;
      const float v = a.beta2 * second[i] + (a.rest2 * g) * g;
      first[i] = m;
      second[i] = v;
      value[i] = w - rate * (m / (sqrtf(v) / root2 + a.eps));
    }
  }
}

__global__ void moving_average(int64_t n, const float *weight, const float *control, float *average,
                               const float *value) {
  if (control[2] == 0) return;
  const float w = *weight, rest = 1 - w;
  for (int64_t i = first_index(); i < n; i += index_stride()) {
    const float a = average[i], x = value[i];
    average[i] = w < 0.5f ? a + w * (x - a) : x - (x - a) * rest;
  }
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
    launch(sum_squares, over(chunks * 32), x.queue, n, chunk, chunks, static_cast<const float *>(x.in[0]),
           static_cast<double *>(x.out[0]));
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
    launch(grad_control, Grid{1, 1, 1, 32}, x.queue, n, max_norm, static_cast<const double *>(x.in[0]),
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
    launch(kernel, Grid{pieces < 65535 ? pieces : 65535}, x.queue, pieces, table.as<Piece>(), momentum,
           static_cast<const float *>(x.in[0]), static_cast<const float *>(x.in[1]), static_cast<float *>(x.out[0]),
           static_cast<const float *>(x.in[3]), momentum != 0 ? static_cast<float *>(x.out[1]) : nullptr);
  });
}

std::unique_ptr<Kernel> make_adamw(const Request &request) {
  const ht_optim_params &p = params_of(request);
  const Adam a{p.beta1, 1 - p.beta1, p.beta2, 1 - p.beta2, p.eps};
  const Optimizer o = optimizer(request);
  return launcher(o.specs, [=, pieces = o.pieces, table = o.table](const Args &x) {
    launch(adamw, Grid{pieces < 65535 ? pieces : 65535}, x.queue, pieces, table.as<Piece>(), a,
           static_cast<const float *>(x.in[0]), static_cast<const float *>(x.in[1]), static_cast<float *>(x.out[0]),
           static_cast<const float *>(x.in[3]), static_cast<float *>(x.out[1]), static_cast<float *>(x.out[2]));
  });
}

std::unique_ptr<Kernel> make_moving_average(const Request &request) {
  Specced k;
  take_plain(k, request);
  for (const ht_spec &s : k.in) want_f32(s);
  const int64_t n = k.in[2].dims[0];
  return launcher(k, [n](const Args &x) {
    launch(moving_average, over(n), x.queue, n, static_cast<const float *>(x.in[0]),
           static_cast<const float *>(x.in[1]), static_cast<float *>(x.out[0]), static_cast<const float *>(x.in[3]));
  });
}

} // namespace hetero
