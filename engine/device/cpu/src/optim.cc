// optim.cc: the norm of the flat gradient, and the optimizers on the flat parameter buffer.
//
//     sum_squares      partial[i] = sum of x² over chunk i, in f64; its bits depend only on the chunk
//     grad_control     computes {norm, scale, ok} from the partial sums
//     moving_average   a = a + w·(x - a), in the order of op_optim.go
//     sgd, adamw       update each element of a segment with the segment's decay and rate; bits as in op_optim.go
//
// Elements outside all segments stay unchanged. The loops are in optim_simd.h.
#include <algorithm>
#include <cmath>

#include "images.h"
#include "layout.h"
#include "ops.h"
#include "simd_table.h"

namespace hetero {
namespace {

constexpr int64_t kChunk = 16384; // elements per thread and chunk

const ht_optim_params &params_of(const Request &request) {
  return *static_cast<const ht_optim_params *>(request.params);
}

struct SumSquares final : Kernel {
  int64_t n, chunk;

  explicit SumSquares(const Request &request) : chunk(params_of(request).chunk) {
    want_operands(request, 1, 1);
    want_f32(request.in[0]);
    if (chunk < 1) throw Invalid("chunk: got " + std::to_string(chunk) + ", want at least 1");
    take_plain(*this, request);
    n = in[0].dims[0];
  }

  void run(const Args &a) override {
    const auto *x = static_cast<const float *>(a.in[0]);
    auto *partial = static_cast<double *>(a.out[0]);
    const auto sum = simd().optim.sum_squares;
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t i = 0; i < out[0].dims[0]; i++) partial[i] = sum(std::min(chunk, n - i * chunk), x + i * chunk);
  }
};

struct GradControl final : Kernel {
  double max_norm;

  explicit GradControl(const Request &request) : max_norm(params_of(request).max_norm) {
    want_operands(request, 2, 1);
    if (request.in[0].dtype != HT_F64) throw Invalid("partial: got " + describe(request.in[0]) + ", want f64");
    want_f32(request.in[1]);
    take_plain(*this, request);
  }

  void run(const Args &a) override {
    const auto *partial = static_cast<const double *>(a.in[0]);
    const double unscale = *static_cast<const float *>(a.in[1]);
    auto *control = static_cast<float *>(a.out[0]);
    double sum = 0;
    for (int64_t i = 0; i < in[0].dims[0]; i++) sum += partial[i];
    const double norm = std::sqrt(sum) * unscale;
    control[0] = float(norm);
    control[1] = float(max_norm != 0 && max_norm / norm < 1 ? unscale * (max_norm / norm) : unscale);
    control[2] = std::isfinite(norm) ? 1.0f : 0.0f;
  }
};

// The common state of the optimizers: segments, and their division into pieces for threads.
struct Optimizer : Kernel {
  std::vector<ht_segment> segments;
  OptimFactors fixed{};
  int64_t n;

  explicit Optimizer(const Request &request) {
    const auto &p = params_of(request);
    take_plain(*this, request);
    for (size_t i = 0; i < in.size(); i++) want_f32(in[i]);
    segments.assign(p.segments, p.segments + p.num_segments);
    n = in[2].dims[0];
    int64_t end = 0;
    for (const ht_segment &s : segments) {
      if (s.offset < end || s.length < 0 || s.length > n - s.offset)
        throw Invalid("segment of " + std::to_string(s.length) + " elements at " + std::to_string(s.offset) +
                      ": want ascending ranges inside " + std::to_string(n) + " elements");
      end = s.offset + s.length;
    }
  }

  // Calls step(f, first, count) for each piece of a segment, in parallel. Before that, factors(segment, f) sets the
  // factors f of the segment.
  template <class Factors, class Step> void each_piece(const Args &a, Factors factors, Step step) const {
    const auto *control = static_cast<const float *>(a.in[1]);
    if (control[2] == 0) return;
#pragma omp parallel for schedule(static) if (worth_threads(in[2].bytes))
    for (int64_t chunk = 0; chunk < (n + kChunk - 1) / kChunk; chunk++) {
      const int64_t from = chunk * kChunk, to = std::min(n, from + kChunk);
      auto s = std::partition_point(segments.begin(), segments.end(),
                                    [&](const ht_segment &x) { return x.offset + x.length <= from; });
      for (; s != segments.end() && s->offset < to; ++s) {
        const int64_t first = std::max(from, s->offset), end = std::min(to, s->offset + s->length);
        if (first >= end) continue;
        OptimFactors f = fixed;
        f.scale = control[1];
        factors(*s, f);
        step(f, first, end - first);
      }
    }
  }
};

struct SGD final : Optimizer {
  bool has_moment, nesterov;

  explicit SGD(const Request &request) : Optimizer(request) {
    const auto &p = params_of(request);
    fixed.momentum = p.momentum;
    has_moment = p.momentum != 0;
    nesterov = p.nesterov != 0;
  }

  void run(const Args &a) override {
    const float lr = static_cast<const float *>(a.in[0])[0];
    auto *value = static_cast<float *>(a.out[0]), *moment = has_moment ? static_cast<float *>(a.out[1]) : nullptr;
    const auto *grad = static_cast<const float *>(a.in[3]);
    const auto sgd = simd().optim.sgd[has_moment][nesterov];
    each_piece(
        a,
        [&](const ht_segment &s, OptimFactors &f) {
          f.decay = s.weight_decay;
          f.rate = lr * s.lr_scale;
        },
        [&](const OptimFactors &f, int64_t i, int64_t count) {
          sgd(count, f, value + i, grad + i, has_moment ? moment + i : nullptr);
        });
  }
};

struct AdamW final : Optimizer {
  explicit AdamW(const Request &request) : Optimizer(request) {
    const auto &p = params_of(request);
    fixed.beta1 = p.beta1;
    fixed.rest1 = 1 - p.beta1;
    fixed.beta2 = p.beta2;
    fixed.rest2 = 1 - p.beta2;
    fixed.eps = p.eps;
  }

  void run(const Args &a) override {
    const auto *hyper = static_cast<const float *>(a.in[0]), *grad = static_cast<const float *>(a.in[3]);
    auto *value = static_cast<float *>(a.out[0]), *m = static_cast<float *>(a.out[1]),
         *v = static_cast<float *>(a.out[2]);
    each_piece(
        a,
        [&](const ht_segment &s, OptimFactors &f) {
          f.decay = (hyper[0] * s.lr_scale) * s.weight_decay;
          f.rate = hyper[1] * s.lr_scale;
          f.root2 = hyper[2];
        },
        [&](const OptimFactors &f, int64_t i, int64_t count) {
          simd().optim.adamw(count, f, value + i, grad + i, m + i, v + i);
        });
  }
};

// Memory bandwidth limits this loop, so the compiler's vectorisation is sufficient.
struct MovingAverage final : Kernel {
  explicit MovingAverage(const Request &request) {
    want_operands(request, 4, 1);
    take_plain(*this, request);
    for (size_t i = 0; i < in.size(); i++) want_f32(in[i]);
  }

  void run(const Args &a) override {
    const float w = *static_cast<const float *>(a.in[0]), rest = 1 - w;
    if (static_cast<const float *>(a.in[1])[2] == 0) return;
    auto *average = static_cast<float *>(a.out[0]);
    const auto *value = static_cast<const float *>(a.in[3]);
    const int64_t n = in[2].dims[0];
#pragma omp parallel for schedule(static) if (worth_threads(in[2].bytes))
    for (int64_t chunk = 0; chunk < (n + kChunk - 1) / kChunk; chunk++) {
      const int64_t from = chunk * kChunk, to = std::min(n, from + kChunk);
      if (w < 0.5f)
        for (int64_t i = from; i < to; i++) average[i] = average[i] + w * (value[i] - average[i]);
      else
        for (int64_t i = from; i < to; i++) average[i] = value[i] - (value[i] - average[i]) * rest;
    }
  }
};

} // namespace

std::unique_ptr<Kernel> make_sum_squares(const Request &request) { return std::make_unique<SumSquares>(request); }

std::unique_ptr<Kernel> make_grad_control(const Request &request) { return std::make_unique<GradControl>(request); }

std::unique_ptr<Kernel> make_sgd(const Request &request) {
  const bool has_moment = params_of(request).momentum != 0;
  want_operands(request, has_moment ? 5 : 4, has_moment ? 2 : 1);
  return std::make_unique<SGD>(request);
}

std::unique_ptr<Kernel> make_adamw(const Request &request) {
  want_operands(request, 6, 3);
  return std::make_unique<AdamW>(request);
}

std::unique_ptr<Kernel> make_moving_average(const Request &request) { return std::make_unique<MovingAverage>(request); }

} // namespace hetero
