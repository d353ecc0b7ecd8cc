// loss.cc: softmax cross-entropy of logits (N, C) against labels (N), with label smoothing s and ignored labels < 0.
//
//   q = (1 - s)·one_hot(label) + s/C      lse = log sum exp(logits)
//   loss = sum_k q_k·(lse - logits_k)     diff_logits = (exp(logits - lse) - q)·scale
//
// With m the largest logit and e = sum exp(logits - m) the loss is
//   log(e) - (1 - s)·(logits_label - m) - s/C·sum(logits - m)
// differences from m only, so that a common offset of the logits costs no accuracy. Threads share the samples; the
// loops are in loss_simd.h.
#include <cmath>
#include <cstring>

#include "bf16.h"
#include "layout.h"
#include "operands.h"
#include "ops.h"
#include "simd_table.h"

namespace hetero {
namespace {

struct Loss : Kernel {
  bool bf16;
  int64_t samples, classes, row_bytes;
  float smoothing;

  Loss(const Request &request, size_t inputs, size_t outputs) {
    want_operands(request, inputs, outputs);
    bf16 = is_bf16(request.in[0]);
    if (request.in[1].dtype != HT_I32) throw Invalid("labels: got " + describe(request.in[1]) + ", want i32");
    take_plain(*this, request);
    samples = in[0].dims[0];
    classes = in[0].dims[1];
    row_bytes = classes * dtype_size(in[0].dtype);
    smoothing = float(static_cast<const ht_loss_params *>(request.params)->label_smoothing);
  }

  float base() const { return smoothing / float(classes); }

  float logit(const void *row, int64_t k) const {
    return bf16 ? to_f32(static_cast<const Bf16 *>(row)[k]) : static_cast<const float *>(row)[k];
  }

  // Labels come from device memory: one beyond the classes would read and write elsewhere.
  void check(const int32_t *labels) const {
    for (int64_t n = 0; n < samples; n++) {
      if (labels[n] >= classes)
        throw std::runtime_error("label " + std::to_string(n) + ": got " + std::to_string(labels[n]) +
                                 ", want below the " + std::to_string(classes) + " classes");
    }
  }
};

struct Forward final : Loss {
  explicit Forward(const Request &request) : Loss(request, 2, 3) {}

  void run(const Args &a) override {
    const auto *labels = static_cast<const int32_t *>(a.in[1]);
    check(labels);
    auto *loss = static_cast<float *>(a.out[0]), *lse = static_cast<float *>(a.out[2]);
    auto *rank = static_cast<int32_t *>(a.out[1]);
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t n = 0; n < samples; n++) {
      const char *row = static_cast<const char *>(a.in[0]) + n * row_bytes;
      const LossTable::Row r = simd().loss.row[bf16](classes, row, labels[n]);
      const double log_sum = std::log(r.sum_exp);
      lse[n] = float(r.largest + log_sum);
      rank[n] = labels[n] < 0 ? -1 : int32_t(r.higher);
      loss[n] = 0;
      if (labels[n] < 0) continue;
      const double own = double(logit(row, labels[n])) - r.largest;
      loss[n] = float(log_sum - (1 - double(smoothing)) * own - (smoothing > 0 ? base() * r.sum : 0));
    }
  }
};

struct Backward final : Loss {
  explicit Backward(const Request &request) : Loss(request, 4, 1) { inplace = {{0, 0}}; }

  void run(const Args &a) override {
    const auto *labels = static_cast<const int32_t *>(a.in[1]);
    check(labels);
    const auto *lse = static_cast<const float *>(a.in[2]);
    const float scale = *static_cast<const float *>(a.in[3]);
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t n = 0; n < samples; n++) {
      const char *row = static_cast<const char *>(a.in[0]) + n * row_bytes;
      char *diff = static_cast<char *>(a.out[0]) + n * row_bytes;
      if (labels[n] < 0)
        std::memset(diff, 0, size_t(row_bytes));
      else
        simd().loss.diff[bf16](classes, row, labels[n], lse[n], base(), smoothing, scale, diff);
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
