// loss.cu: softmax cross-entropy of logits (N, C) against labels (N), with label smoothing s and ignored labels < 0.
//
//   q = (1 - s)·one_hot(label) + s/C      lse = log sum exp(logits)
//   loss = sum_k q_k·(lse - logits_k)     diff_logits = (exp(logits - lse) - q)·scale
//
// A warp processes a sample. With m the largest logit, the loss is a sum of differences from m, so that a common offset
// of the logits costs no accuracy. A mixed sample has lambda·one_hot(label) + (1 - lambda)·one_hot(second) instead of
// one_hot(label). A label above the last class gives NaN, and no memory is read for it; the host refuses such labels
// earlier.
#include <cmath>

#include "gpu.h"
#include "ops.h"
#include "warp.h"

namespace hetero {
namespace {

struct Targets {
  const int32_t *first, *second; // second and lambda: null unless mixed
  const float *lambda;

  __device__ float part(int64_t n) const { return lambda ? lambda[n] : 1.0f; }
  __device__ int32_t other(int64_t n) const { return lambda ? second[n] : first[n]; }
  // The label with the larger weight.
  __device__ int32_t main(int64_t n) const { return lambda && lambda[n] < 0.5f ? second[n] : first[n]; }
  __device__ bool sound(int64_t n, int64_t classes) const {
    return first[n] < classes && other(n) >= 0 && other(n) < classes;
  }
};

template <class T>
__global__ void cross_entropy(int64_t samples, int64_t classes, float smoothing, const T *logits, Targets t,
                              float *loss, int32_t *position, float *lse) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  for (int64_t n = first_index() / 32; n < samples; n += warps) {
    const T *row = logits + n * classes;
    float most = -INFINITY;
    for (int64_t k = lane; k < classes; k += 32) {
      const float x = load(row + k);
      most = x > most || x != x ? x : most; // NaN stays NaN
    }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(kAll, most, step);
      most = other > most || other != other ? other : most;
    }
    const bool labelled = t.first[n] >= 0, sound = labelled && t.sound(n, classes);
    const int32_t label = sound ? t.main(n) : 0;
    const float own = load(row + label);
    float sum = 0, below = 0; // sums of exp(x - most) and of x - most
    int above = 0;
    for (int64_t k = lane; k < classes; k += 32) {
      const float x = load(row + k);
      sum += expf(x - most);
      below += x - most;
      above += x > own || (x == own && k < label);
    }
    sum = warp_sum(sum);
    below = warp_sum(below);
    for (int step = 16; step > 0; step /= 2) above += __shfl_xor_sync(kAll, above, step);
    if (lane > 0) continue;
    const float log_sum = logf(sum);
    lse[n] = most + log_sum;
    if (!labelled) {
      loss[n] = 0;
      position[n] = -1;
      continue;
    }
    const float part = t.part(n), rest = 1 - part;
    float correct = sound ? part * (load(row + t.first[n]) - most) : NAN;
    if (rest != 0 && sound) correct += rest * (load(row + t.other(n)) - most);
    loss[n] =
        log_sum - (1 - smoothing) * correct - (smoothing != 0 ? smoothing / static_cast<float>(classes) * below : 0);
    position[n] = above;
  }
}

template <class T>
__global__ void cross_entropy_diff(int64_t samples, int64_t classes, float smoothing, const T *logits, Targets t,
                                   const float *lse, const float *scale, T *diff) {
  const float factor = *scale, base = smoothing / static_cast<float>(classes);
  for (int64_t i = first_index(); i < samples * classes; i += index_stride()) {
    const int64_t n = i / classes, k = i % classes;
    if (t.first[n] < 0) {
      store(diff + i, 0);
      continue;
    }
    const float part = t.part(n), rest = 1 - part;
    float q = base;
    if (k == t.first[n]) q += (1 - smoothing) * part;
    if (rest != 0 && k == t.other(n)) q += (1 - smoothing) * rest;
    store(diff + i, t.sound(n, classes) ? (expf(load(logits + i) - lse[n]) - q) * factor : NAN);
  }
}

struct Loss {
  Specced specs;
  int64_t samples, classes;
  float smoothing;
  size_t mixed; // position of second labels and lambdas in the inputs, 0: not mixed

  explicit Loss(const Request &request, size_t inputs) {
    const auto &p = *static_cast<const ht_loss_params *>(request.params);
    mixed = p.mixed ? inputs : 0;
    if (request.in.size() != inputs + (p.mixed ? 2 : 0))
      throw Invalid("got " + std::to_string(request.in.size()) + " inputs, want " +
                    std::to_string(inputs + (p.mixed ? 2 : 0)));
    take_plain(specs, request);
    for (size_t i : {size_t{1}, mixed ? mixed : 1})
      if (specs.in[i].dtype != HT_I32) throw Invalid("labels: got " + describe(specs.in[i]) + ", want i32");
    samples = specs.in[0].dims[0];
    classes = specs.in[0].dims[1];
    smoothing = static_cast<float>(p.label_smoothing);
  }

  Targets targets(const Args &x) const {
    return {static_cast<const int32_t *>(x.in[1]), mixed ? static_cast<const int32_t *>(x.in[mixed]) : nullptr,
            mixed ? static_cast<const float *>(x.in[mixed + 1]) : nullptr};
  }
};

} // namespace

std::unique_ptr<Kernel> make_softmax_cross_entropy(const Request &request) {
  const Loss l(request, 2);
  return with_float(l.specs.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(l.specs, [l](const Args &x) {
      launch(cross_entropy<T>, over(l.samples * 32), x.queue, l.samples, l.classes, l.smoothing,
             static_cast<const T *>(x.in[0]), l.targets(x), static_cast<float *>(x.out[0]),
             static_cast<int32_t *>(x.out[1]), static_cast<float *>(x.out[2]));
    });
  });
}

std::unique_ptr<Kernel> make_softmax_cross_entropy_diff(const Request &request) {
  Loss l(request, 4);
  l.specs.inplace = {{0, 0}};
  return with_float(l.specs.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(l.specs, [l](const Args &x) {
      launch(cross_entropy_diff<T>, over(l.samples * l.classes), x.queue, l.samples, l.classes, l.smoothing,
             static_cast<const T *>(x.in[0]), l.targets(x), static_cast<const float *>(x.in[2]),
             static_cast<const float *>(x.in[3]), static_cast<T *>(x.out[0]));
    });
  });
}

} // namespace hetero
