// plain_linear.cc: linear layers over plain tensors.
//
// Shapes: src (N, I), weight (O, I), dst (N, O). T is the element type of src and weight, and D is that of dst.
#include <algorithm>

#include "plain.h"
#include "plain_types.h"

namespace hetero {

namespace {

constexpr int64_t kLanes = 16; // number of partial sums, which the compiler keeps in vectors
constexpr int64_t kTile = 512; // number of elements of a row that are summed on the stack

template <class T> float dot(const T *a, const T *b, int64_t n) {
  float sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; l++) sum[l] += load(a + i + l) * load(b + i + l);
  for (; i < n; i++) sum[i % kLanes] += load(a + i) * load(b + i);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; l++) sum[l] += sum[l + half];
  return sum[0];
}

template <class T, class D> struct Forward : Kernel {
  void run(const Args &args) override {
    auto *src = static_cast<const T *>(args.in[0]), *weight = static_cast<const T *>(args.in[1]);
    auto *bias = in.size() == 3 ? static_cast<const float *>(args.in[2]) : nullptr;
    auto *dst = static_cast<D *>(args.out[0]);
    int64_t rows = in[0].dims[0], inner = in[0].dims[1], columns = in[1].dims[0];
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < rows; n++)
      for (int64_t o = 0; o < columns; o++)
        store(dst + n * columns + o, dot(src + n * inner, weight + o * inner, inner) + (bias ? bias[o] : 0));
  }
};

template <class T, class D> struct DiffSrc : Kernel {
  void run(const Args &args) override {
    auto *diff_dst = static_cast<const D *>(args.in[0]);
    auto *weight = static_cast<const T *>(args.in[1]);
    auto *diff_src = static_cast<T *>(args.out[0]);
    int64_t rows = in[0].dims[0], outer = in[0].dims[1], columns = in[1].dims[1];
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < rows; n++)
      for (int64_t from = 0; from < columns; from += kTile) {
        int64_t count = std::min(kTile, columns - from);
        float sum[kTile] = {};
        for (int64_t o = 0; o < outer; o++) {
          float f = load(diff_dst + n * outer + o);
          for (int64_t i = 0; i < count; i++) sum[i] += f * load(weight + o * columns + from + i);
        }
        for (int64_t i = 0; i < count; i++) store(diff_src + n * columns + from + i, sum[i]);
      }
  }
};

template <class T, class D> struct DiffWeights : Kernel {
  void run(const Args &args) override {
    auto *src = static_cast<const T *>(args.in[0]);
    auto *diff_dst = static_cast<const D *>(args.in[1]);
    auto *diff_weight = static_cast<float *>(args.out[0]);
    auto *diff_bias = out.size() == 2 ? static_cast<float *>(args.out[1]) : nullptr;
    int64_t rows = in[0].dims[0], columns = in[0].dims[1], outer = in[1].dims[1];
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t o = 0; o < outer; o++)
      for (int64_t from = 0; from < columns; from += kTile) {
        int64_t count = std::min(kTile, columns - from);
        float sum[kTile] = {};
        double bias = 0;
        for (int64_t n = 0; n < rows; n++) {
          float f = load(diff_dst + n * outer + o);
          bias += f;
          for (int64_t i = 0; i < count; i++) sum[i] += f * load(src + n * columns + from + i);
        }
        std::copy_n(sum, count, diff_weight + o * columns + from);
        if (diff_bias && from == 0) diff_bias[o] = static_cast<float>(bias);
      }
  }
};

// Creates K<T, D> for the element types of two specs.
template <template <class, class> class K>
std::unique_ptr<Kernel> make(const Request &r, const ht_spec &t, const ht_spec &d) {
  std::unique_ptr<Kernel> k;
  with_type(t, [&](auto *tp) {
    with_type(d, [&](auto *dp) {
      k = std::make_unique<K<std::remove_pointer_t<decltype(tp)>, std::remove_pointer_t<decltype(dp)>>>();
    });
  });
  take_plain_operands(*k, r);
  return k;
}

} // namespace

std::unique_ptr<Kernel> make_plain_linear(const Request &r) { return make<Forward>(r, r.in[0], r.out[0]); }
std::unique_ptr<Kernel> make_plain_linear_diff_src(const Request &r) { return make<DiffSrc>(r, r.in[1], r.in[0]); }
std::unique_ptr<Kernel> make_plain_linear_diff_weights(const Request &r) {
  return make<DiffWeights>(r, r.in[0], r.in[1]);
}

} // namespace hetero
