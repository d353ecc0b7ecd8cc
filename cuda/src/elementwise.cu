// elementwise.cu: unary, unary_diff, binary, scale and fill.
//
//     unary        dst = f(src)
//     unary_diff   diff_src = diff_dst·f'(src)
//     binary       dst = f(a, b)                 b is broadcast along dimensions in which it has extent 1 or is missing
//     scale        dst = src·factor
//     fill         dst = value
//
// If all operands have one shape, they are processed in memory order, in any common layout. If their addresses permit
// it, a thread processes 16 bytes at a time. Arithmetic is f32, and results are rounded once when they are stored.
#include "gelu.h"
#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

__device__ float unary(int func, float x) {
  switch (func) {
  case HT_RELU: return x < 0 ? 0.0f : x; // NaN stays NaN
  case HT_SIGMOID: return 1 / (1 + expf(-x));
  case HT_TANH: return tanhf(x);
  case HT_GELU:
  case HT_GELU_TANH: return gelu(func == HT_GELU_TANH, x);
  case HT_EXP: return expf(x);
  case HT_LOG: return logf(x);
  case HT_SQRT: return sqrtf(x);
  case HT_SQUARE: return x * x;
  case HT_NEG: return -x;
  default: return fabsf(x);
  }
}

__device__ float derivative(int func, float x) {
  switch (func) {
  case HT_RELU: return x > 0 ? 1.0f : x == x ? 0.0f : x;
  case HT_SIGMOID: {
    const float s = 1 / (1 + expf(-x));
    return s * (1 - s);
  }
  case HT_TANH: {
    const float t = tanhf(x);
    return 1 - t * t;
  }
  case HT_GELU:
  case HT_GELU_TANH: return gelu_derivative(func == HT_GELU_TANH, x);
  case HT_EXP: return expf(x);
  case HT_LOG: return 1 / x;
  case HT_SQRT: return 0.5f / sqrtf(x);
  case HT_SQUARE: return 2 * x;
  case HT_NEG: return -1;
  default: return x > 0 ? 1.0f : x < 0 ? -1.0f : x == x ? 0.0f : x;
  }
}

__device__ float binary(int func, float a, float b) {
  switch (func) {
  case HT_ADD: return a + b;
  case HT_SUB: return a - b;
  case HT_MUL: return a * b;
  case HT_DIV: return a / b;
  case HT_MAX: return a > b || a != a ? a : b; // NaN stays NaN
  default: return a < b || a != a ? a : b;
  }
}

// The function is a run-time value, equal for all threads. Memory bandwidth limits these kernels, so the switch costs
// no time. It reduces the number of compiled kernels by a factor of eleven.
struct Apply {
  int func;
  __device__ float operator()(float x, float) const { return unary(func, x); }
};
struct Diff { // diff_dst, src
  int func;
  __device__ float operator()(float d, float x) const { return d * derivative(func, x); }
};
struct Combine {
  int func;
  __device__ float operator()(float a, float b) const { return binary(func, a, b); }
};

// dst[i] = f(a[i], b[i]); without b, f(a[i], 0). Processes V elements at a time, then the rest one by one.
template <int V, bool two, class T, class F> __device__ void map(int64_t n, const T *a, const T *b, T *dst, F f) {
  float x[V], y[V] = {};
  for (int64_t i = first_index(); i < n / V; i += index_stride()) {
    load_row<V>(a, i * V, x);
    if (two) load_row<V>(b, i * V, y);
    for (int v = 0; v < V; v++) x[v] = f(x[v], y[v]);
    store_row<V>(dst, i * V, x);
  }
  for (int64_t i = n / V * V + first_index(); i < n; i += index_stride())
    store(dst + i, f(load(a + i), two ? load(b + i) : 0));
}

template <int V, bool two, class T, class F> __global__ void map_all(int64_t n, const T *a, const T *b, T *dst, F f) {
  map<V, two>(n, a, b, dst, f);
}

// Creates a kernel that computes dst = f(inputs), element by element. All operands have one shape.
template <bool two, class F> std::unique_ptr<Kernel> mapped(const Request &request, F f) {
  Specced k;
  k.in = request.in;
  k.out = request.out;
  if (two)
    choose_shared_layout(k, request, {0, 1}, {0}), k.inplace = {{0, 0}, {0, 1}};
  else
    choose_shared_layout(k, request, {0}, {0}), k.inplace = {{0, 0}};
  const int64_t n = elements(k.out[0]);
  return with_float(k.out[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [n, f](const Args &x) {
      const auto *a = static_cast<const T *>(x.in[0]), *b = two ? static_cast<const T *>(x.in[1]) : nullptr;
      auto *dst = static_cast<T *>(x.out[0]);
      constexpr int most = Pack<T>::size;
      if (aligned({a, b, dst}))
        launch(map_all<most, two, T, F>, over(n / most + 1), x.queue, n, a, b, dst, f);
      else
        launch(map_all<1, two, T, F>, over(n), x.queue, n, a, b, dst, f);
    });
  });
}

int func_of(const Request &request, int last) {
  const int func = static_cast<const ht_elementwise_params *>(request.params)->func;
  if (func < 0 || func > last)
    throw Invalid("function: got " + std::to_string(func) + ", want 0 to " + std::to_string(last));
  return func;
}

// How b is broadcast. stride is 0 where b has extent 1, or lacks the dimension.
struct Repeat {
  int ndim;
  int64_t dims[HT_MAX_DIMS], stride[HT_MAX_DIMS];

  int64_t last() const { return ndim > 0 ? dims[ndim - 1] : 1; }
};

// Combines V adjacent elements of a row of `a` with V adjacent elements of b, or with one element of b.
template <int V, class T> __global__ void map_repeated(int64_t n, Repeat r, const T *a, const T *b, T *dst, Combine f) {
  const bool one = r.ndim == 0 || r.stride[r.ndim - 1] == 0;
  float x[V], y[V];
  for (int64_t i = first_index(); i < n / V; i += index_stride()) {
    int64_t rest = i * V, at = 0;
    for (int d = r.ndim - 1; d >= 0; d--) {
      at += rest % r.dims[d] * r.stride[d];
      rest /= r.dims[d];
    }
    load_row<V>(a, i * V, x);
    if (one)
      for (int v = 0; v < V; v++) y[v] = load(b + at);
    else
      load_row<V>(b, at, y);
    for (int v = 0; v < V; v++) x[v] = f(x[v], y[v]);
    store_row<V>(dst, i * V, x);
  }
}

// Creates the kernel of a binary op whose b is broadcast.
std::unique_ptr<Kernel> repeated(const Request &request, Combine f) {
  Specced k;
  take_plain(k, request);
  k.inplace = {{0, 0}};
  const ht_spec &a = k.in[0], &b = k.in[1];
  Repeat r{a.ndim, {}, {}};
  int64_t stride = 1;
  for (int d = a.ndim - 1, e = b.ndim - 1; d >= 0; d--, e--) {
    r.dims[d] = a.dims[d];
    if (e < 0) continue;
    r.stride[d] = b.dims[e] == 1 ? 0 : stride;
    stride *= b.dims[e];
  }
  const int64_t n = elements(a);
  return with_float(a, [&](auto type) {
    using T = decltype(type);
    return launcher(k, [n, r, f](const Args &x) {
      constexpr int most = Pack<T>::size;
      const bool wide = r.last() % most == 0 && aligned({x.in[0], x.in[1], x.out[0]});
      launch(wide ? map_repeated<most, T> : map_repeated<1, T>, over(wide ? n / most : n), x.queue, n, r,
             static_cast<const T *>(x.in[0]), static_cast<const T *>(x.in[1]), static_cast<T *>(x.out[0]), f);
    });
  });
}

struct Times {
  float factor;
  __device__ float operator()(float x, float) const { return x * factor; }
};

template <int V, class T> __global__ void scale_all(int64_t n, const T *src, const float *factor, T *dst) {
  map<V, false>(n, src, src, dst, Times{*factor});
}

template <int V, class T> __global__ void fill_all(int64_t n, T *dst, T value) {
  Pack<T, V> pack;
  for (int v = 0; v < V; v++) pack.v[v] = value;
  for (int64_t i = first_index(); i < n / V; i += index_stride()) reinterpret_cast<Pack<T, V> *>(dst)[i] = pack;
  for (int64_t i = n / V * V + first_index(); i < n; i += index_stride()) dst[i] = value;
}

template <class T> std::unique_ptr<Kernel> filled(const Specced &k, T value) {
  const int64_t n = elements(k.out[0]);
  return launcher(k, [n, value](const Args &x) {
    constexpr int most = Pack<T>::size;
    const bool wide = aligned({x.out[0]});
    launch(wide ? fill_all<most, T> : fill_all<1, T>, over(wide ? n / most + 1 : n), x.queue, n,
           static_cast<T *>(x.out[0]), value);
  });
}

} // namespace

std::unique_ptr<Kernel> make_unary(const Request &request) {
  return mapped<false>(request, Apply{func_of(request, HT_ABS)});
}

std::unique_ptr<Kernel> make_unary_diff(const Request &request) {
  return mapped<true>(request, Diff{func_of(request, HT_ABS)});
}

std::unique_ptr<Kernel> make_binary(const Request &request) {
  const Combine f{func_of(request, HT_MIN)};
  return same_dims(request.in[0], request.in[1]) ? mapped<true>(request, f) : repeated(request, f);
}

std::unique_ptr<Kernel> make_scale(const Request &request) {
  Specced k;
  take_plain(k, request);
  choose_shared_layout(k, request, {0}, {0});
  want_f32(k.in[1]);
  k.inplace = {{0, 0}};
  const int64_t n = elements(k.out[0]);
  return with_float(k.out[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [n](const Args &x) {
      constexpr int most = Pack<T>::size;
      const bool wide = aligned({x.in[0], x.out[0]});
      launch(wide ? scale_all<most, T> : scale_all<1, T>, over(wide ? n / most + 1 : n), x.queue, n,
             static_cast<const T *>(x.in[0]), static_cast<const float *>(x.in[1]), static_cast<T *>(x.out[0]));
    });
  });
}

std::unique_ptr<Kernel> make_fill(const Request &request) {
  Specced k;
  take_plain(k, request);
  choose_shared_layout(k, request, {}, {0});
  const double value = static_cast<const ht_fill_params *>(request.params)->value;
  switch (k.out[0].dtype) {
  case HT_I32: return filled(k, static_cast<int32_t>(value));
  case HT_I64: return filled(k, static_cast<int64_t>(value));
  case HT_U32: return filled(k, static_cast<uint32_t>(value));
  case HT_U8: return filled(k, static_cast<uint8_t>(value));
  case HT_F64: return filled(k, value);
  }
  return with_float(k.out[0], [&](auto type) {
    decltype(type) rounded;
    store(&rounded, static_cast<float>(value));
    return filled(k, rounded);
  });
}

} // namespace hetero
