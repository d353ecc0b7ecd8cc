// reduce.cu: sums, means and maxima over dimensions of a tensor.
//
// A warp reduces the values of one element of dst. Each lane takes every 32nd value, then lanes are combined pairwise.
// The order of operations therefore depends only on the shape.
#include <cmath>

#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

struct Fold {
  int kept, folded; // numbers of dimensions
  int64_t kept_dims[HT_MAX_DIMS], kept_stride[HT_MAX_DIMS], folded_dims[HT_MAX_DIMS], folded_stride[HT_MAX_DIMS];
  int64_t results, values; // elements of dst; values that each element combines
  int func;
};

__device__ int64_t offset(int64_t i, int ndim, const int64_t *dims, const int64_t *stride) {
  int64_t at = 0;
  for (int d = ndim - 1; d >= 0; d--) {
    at += i % dims[d] * stride[d];
    i /= dims[d];
  }
  return at;
}

__device__ float join(int func, float a, float b) {
  if (func != HT_MAXIMUM) return a + b;
  return a > b || a != a ? a : b;
}

template <class T> __global__ void fold(Fold f, const T *src, T *dst) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = index_stride() / 32;
  for (int64_t i = first_index() / 32; i < f.results; i += warps) {
    const int64_t start = offset(i, f.kept, f.kept_dims, f.kept_stride);
    float sum = f.func == HT_MAXIMUM ? -INFINITY : 0;
    for (int64_t v = lane; v < f.values; v += 32)
      sum = join(f.func, sum, load(src + start + offset(v, f.folded, f.folded_dims, f.folded_stride)));
    for (int step = 16; step > 0; step /= 2) sum = join(f.func, sum, __shfl_down_sync(0xffffffffu, sum, step));
    if (lane == 0) store(dst + i, f.func == HT_MEAN ? sum / static_cast<float>(f.values) : sum);
  }
}

} // namespace

std::unique_ptr<Kernel> make_reduce(const Request &request) {
  const auto &p = *static_cast<const ht_move_params *>(request.params);
  if (p.func < HT_SUM || p.func > HT_MAXIMUM)
    throw Invalid("function: got " + std::to_string(p.func) + ", want " + std::to_string(HT_SUM) + " to " +
                  std::to_string(HT_MAXIMUM));
  Specced k;
  take_plain(k, request);
  const ht_spec &src = k.in[0];
  Fold f{};
  f.func = p.func;
  f.results = elements(k.out[0]);
  f.values = elements(src) / f.results;
  int64_t stride[HT_MAX_DIMS], n = 1;
  for (int d = src.ndim - 1; d >= 0; d--) {
    stride[d] = n;
    n *= src.dims[d];
  }
  for (int d = 0, a = 0; d < src.ndim; d++) {
    const bool folds = a < p.num_axes && p.axes[a] == d;
    a += folds;
    int &count = folds ? f.folded : f.kept;
    (folds ? f.folded_dims : f.kept_dims)[count] = src.dims[d];
    (folds ? f.folded_stride : f.kept_stride)[count++] = stride[d];
  }
  return with_float(src, [&](auto type) {
    using T = decltype(type);
    return launcher(k, [f](const Args &x) {
      launch(fold<T>, over(f.results * 32), x.queue, f, static_cast<const T *>(x.in[0]), static_cast<T *>(x.out[0]));
    });
  });
}

} // namespace hetero
