// loss.cc: softmax cross-entropy of logits (N, C) against labels (N), with label smoothing s. Samples with labels < 0
// are ignored. For a sample, k is a class, and:
//
//     q = (1 - s)·one_hot(label) + s/C
//     lse = log(sum_k exp(logits_k))
//     loss = sum_k q_k·(lse - logits_k)
//     diff_logits = (exp(logits - lse) - q)·scale
//
// For a mixed sample, lambda·one_hot(label) + (1 - lambda)·one_hot(second) replaces one_hot(label).
//
// The kernels compute the loss in another form, with the largest logit m and e = sum_k exp(logits_k - m):
//
//     loss = log(e) - (1 - s)·(logits_label - m) - s/C·sum_k (logits_k - m)
//
// This form uses only differences from m, so that a common offset of the logits costs no accuracy. Threads divide the
// samples. The loops are in loss_simd.h.
#include <cmath>
#include <cstring>

#include "bf16.h"
#include "images.h"
#include "layout.h"
#include "ops.h"
#include "simd_table.h"

namespace hetero {
namespace {

struct Loss : Kernel {
  bool bf16, mixed;
  int64_t samples, classes, row_bytes;
  float smoothing;

  Loss(const Request &request, size_t inputs, size_t outputs) {
    const auto *p = static_cast<const ht_loss_params *>(request.params);
    mixed = p->mixed != 0;
    want_operands(request, inputs + (mixed ? 2 : 0), outputs);
    bf16 = is_bf16(request.in[0]);
    if (request.in[1].dtype != HT_I32) throw Invalid("labels: got " + describe(request.in[1]) + ", want i32");
    if (mixed && request.in[inputs].dtype != HT_I32)
      throw Invalid("second labels: got " + describe(request.in[inputs]) + ", want i32");
    take_plain(*this, request);
    samples = in[0].dims[0];
    classes = in[0].dims[1];
    row_bytes = classes * dtype_size(in[0].dtype);
    smoothing = float(p->label_smoothing);
  }

  float base() const { return smoothing / float(classes); }

  float logit(const void *row, int64_t k) const {
    return bf16 ? to_f32(static_cast<const Bf16 *>(row)[k]) : static_cast<const float *>(row)[k];
  }

  struct Labels {
    const int32_t *first, *second; // second and lambda are nullptr if samples are not mixed
    const float *lambda;

    // Returns the label with the larger weight.
    int64_t main(int64_t n) const { return lambda && lambda[n] < 0.5f ? second[n] : first[n]; }
  };

  Labels labels(const Args &a) const {
    Labels l{static_cast<const int32_t *>(a.in[1]), nullptr, nullptr};
    if (mixed) {
      l.second = static_cast<const int32_t *>(a.in[in.size() - 2]);
      l.lambda = static_cast<const float *>(a.in[in.size() - 1]);
    }
    check(l);
    return l;
  }

  // Checks the labels, which come from device memory. A label above the last class would access memory outside of the
  // row.
  void check(const Labels &l) const {
    for (int64_t n = 0; n < samples; n++) {
      if (l.first[n] >= classes)
        throw std::runtime_error("label " + std::to_string(n) + ": got class " + std::to_string(l.first[n]) +
                                 ", want less than " + std::to_string(classes) + ", the number of classes");
      if (mixed && l.first[n] >= 0 && (l.second[n] < 0 || l.second[n] >= classes))
        throw std::runtime_error("second label " + std::to_string(n) + ": got " + std::to_string(l.second[n]) +
                                 ", want 0 to " + std::to_string(classes - 1));
    }
  }
};

struct Forward final : Loss {
  explicit Forward(const Request &request) : Loss(request, 2, 3) {}

  void run(const Args &a) override {
    const Labels l = labels(a);
    auto *loss = static_cast<float *>(a.out[0]), *lse = static_cast<float *>(a.out[2]);
    auto *position = static_cast<int32_t *>(a.out[1]);
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t n = 0; n < samples; n++) {
      const char *row = static_cast<const char *>(a.in[0]) + n * row_bytes;
      const LossTable::Row r = simd().loss.row[bf16](classes, row, l.first[n] < 0 ? -1 : l.main(n));
      const double log_sum = std::log(r.sum_exp);
      lse[n] = float(r.largest + log_sum);
      position[n] = l.first[n] < 0 ? -1 : int32_t(r.higher);
      loss[n] = 0;
      if (l.first[n] < 0) continue;
      double own = double(logit(row, l.first[n])) - r.largest;
      if (mixed) own = l.lambda[n] * own + (1 - double(l.lambda[n])) * (double(logit(row, l.second[n])) - r.largest);
      loss[n] = float(log_sum - (1 - double(smoothing)) * own - (smoothing > 0 ? base() * r.sum : 0));
    }
  }
};

struct Backward final : Loss {
  explicit Backward(const Request &request) : Loss(request, 4, 1) { inplace = {{0, 0}}; }

  void run(const Args &a) override {
    const Labels l = labels(a);
    const auto *lse = static_cast<const float *>(a.in[2]);
    const float scale = *static_cast<const float *>(a.in[3]);
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t n = 0; n < samples; n++) {
      const char *row = static_cast<const char *>(a.in[0]) + n * row_bytes;
      char *diff = static_cast<char *>(a.out[0]) + n * row_bytes;
      if (l.first[n] < 0) {
        std::memset(diff, 0, size_t(row_bytes));
        continue;
      }
      LossTable::Target target{l.first[n], l.first[n], 1 - smoothing, 1 - smoothing, base()};
      if (mixed && l.second[n] != l.first[n]) {
        target.second = l.second[n];
        target.hot = (1 - smoothing) * l.lambda[n];
        target.second_hot = (1 - smoothing) * (1 - l.lambda[n]);
      }
      simd().loss.diff[bf16](classes, row, target, lse[n], scale, diff);
    }
  }
};

} // namespace

std::unique_ptr<Kernel> make_softmax_cross_entropy(const Request &request) {
  return std::make_unique<Forward>(request);
}

std::unique_ptr<Kernel> make_softmax_cross_entropy_diff(const Request &request) {
  return std::make_unique<Backward>(request);
}

} // namespace hetero
