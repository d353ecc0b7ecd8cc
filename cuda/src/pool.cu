// pool.cu: max, average and global average pooling.
//
// Gradients are gathered: a thread sums the contributions of the windows over its pixel, in the order of the windows,
// and writes the sum once. There are no atomics, so repeated runs are bit-equal. argmax contains the number of each
// window's maximal tap, 2 bytes each, in dst's order. A thread processes 16 bytes of channels if they are contiguous.
#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

struct Pool {
  int64_t n, c, h, w, oh, ow; // src (N, C, H, W), dst (N, C, OH, OW)
  int kh, kw, sy, sx, py, px, dy, dx;
  bool nhwc, count_padding;

  // The offset of element (n, c, y, x) of an image with the given height and width.
  __device__ int64_t at(int64_t in, int64_t ic, int64_t y, int64_t x, int64_t height, int64_t width) const {
    return nhwc ? ((in * height + y) * width + x) * c + ic : ((in * c + ic) * height + y) * width + x;
  }
  // The first of V channels for thread i in the image's memory order. Divisions have 32 bits if possible, because
  // divisions of 64 bits take longer than the memory accesses.
  template <int V>
  __device__ void split(int64_t i, int64_t height, int64_t width, int64_t &in, int64_t &ic, int &y, int &x) const {
    if (i >> 32)
      divide<V>(i, height, width, in, ic, y, x);
    else
      divide<V>(static_cast<uint32_t>(i), static_cast<uint32_t>(height), static_cast<uint32_t>(width), in, ic, y, x);
  }
  template <int V, class Int>
  __device__ void divide(Int i, Int height, Int width, int64_t &in, int64_t &ic, int &y, int &x) const {
    const Int pieces = static_cast<Int>(c / V);
    if (nhwc) ic = i % pieces * V, i /= pieces;
    x = static_cast<int>(i % width), i /= width, y = static_cast<int>(i % height), i /= height;
    if (!nhwc) ic = i % pieces * V, i /= pieces;
    in = i;
  }
  // Whether a thread can process a pack of channels at these addresses.
  template <class T> bool packs(std::initializer_list<const void *> addresses) const {
    return nhwc && c % Pack<T>::size == 0 && aligned(addresses);
  }
  __device__ bool inside(int y, int x) const { return y >= 0 && y < h && x >= 0 && x < w; }
  // The divisor of the sum of window (oy, ox). The mean of a window that lies entirely in the padding is 0.
  __device__ float count(int oy, int ox) const {
    if (count_padding) return static_cast<float>(kh * kw);
    int taps = 0;
    for (int ky = 0; ky < kh; ky++)
      for (int kx = 0; kx < kw; kx++) taps += inside(oy * sy - py + ky * dy, ox * sx - px + kx * dx);
    return static_cast<float>(taps > 1 ? taps : 1);
  }
};

constexpr int16_t kNone = -1;

// The maximal taps of V channels.
template <int V> struct alignas(2 * V) Taps { int16_t v[V]; };

template <class T, int V> __global__ void max_pool(Pool p, const T *src, T *dst, int16_t *argmax) {
  for (int64_t i = first_index(); i < p.n * p.c / V * p.oh * p.ow; i += index_stride()) {
    int64_t n, c;
    int oy, ox;
    p.split<V>(i, p.oh, p.ow, n, c, oy, ox);
    float best[V], value[V];
    Taps<V> winner;
    for (int v = 0; v < V; v++) best[v] = -INFINITY, winner.v[v] = kNone;
    for (int ky = 0; ky < p.kh; ky++)
      for (int kx = 0; kx < p.kw; kx++) {
        const int y = oy * p.sy - p.py + ky * p.dy, x = ox * p.sx - p.px + kx * p.dx;
        if (!p.inside(y, x)) continue;
        load_row<V>(src, p.at(n, c, y, x, p.h, p.w), value);
        for (int v = 0; v < V; v++)
          if (winner.v[v] == kNone || value[v] > best[v] || (value[v] != value[v] && best[v] == best[v])) { // or a NaN
            best[v] = value[v];
            winner.v[v] = static_cast<int16_t>(ky * p.kw + kx);
          }
      }
    store_row<V>(dst, i * V, best);
    if (argmax) reinterpret_cast<Taps<V> *>(argmax)[i] = winner;
  }
}

// Calls body(offset of the window in dst, oy, ox, tap) for the windows over pixel (y, x), in their order.
template <class Body> __device__ void each_window(const Pool &p, int64_t n, int64_t c, int y, int x, Body body) {
  int first_y = (y + p.py - (p.kh - 1) * p.dy + p.sy - 1) / p.sy, last_y = (y + p.py) / p.sy;
  int first_x = (x + p.px - (p.kw - 1) * p.dx + p.sx - 1) / p.sx, last_x = (x + p.px) / p.sx;
  if (y + p.py < (p.kh - 1) * p.dy) first_y = 0; // division rounds towards zero
  if (x + p.px < (p.kw - 1) * p.dx) first_x = 0;
  if (last_y >= p.oh) last_y = static_cast<int>(p.oh) - 1;
  if (last_x >= p.ow) last_x = static_cast<int>(p.ow) - 1;
  for (int oy = first_y; oy <= last_y; oy++) {
    const int ty = y + p.py - oy * p.sy;
    if (ty % p.dy) continue;
    for (int ox = first_x; ox <= last_x; ox++) {
      const int tx = x + p.px - ox * p.sx;
      if (tx % p.dx) continue;
      body(p.at(n, c, oy, ox, p.oh, p.ow), oy, ox, ty / p.dy * p.kw + tx / p.dx);
    }
  }
}

template <class T, int V> __global__ void max_pool_diff(Pool p, const T *diff_dst, const int16_t *argmax, T *diff_src) {
  for (int64_t i = first_index(); i < p.n * p.c / V * p.h * p.w; i += index_stride()) {
    int64_t n, c;
    int y, x;
    p.split<V>(i, p.h, p.w, n, c, y, x);
    float sum[V] = {}, value[V];
    each_window(p, n, c, y, x, [&](int64_t at, int, int, int tap) {
      const Taps<V> winner = reinterpret_cast<const Taps<V> *>(argmax)[at / V];
      load_row<V>(diff_dst, at, value);
      for (int v = 0; v < V; v++)
        if (winner.v[v] == tap) sum[v] += value[v];
    });
    store_row<V>(diff_src, i * V, sum);
  }
}

template <class T, int V> __global__ void avg_pool(Pool p, const T *src, T *dst) {
  for (int64_t i = first_index(); i < p.n * p.c / V * p.oh * p.ow; i += index_stride()) {
    int64_t n, c;
    int oy, ox;
    p.split<V>(i, p.oh, p.ow, n, c, oy, ox);
    float sum[V] = {}, value[V];
    for (int ky = 0; ky < p.kh; ky++)
      for (int kx = 0; kx < p.kw; kx++) {
        const int y = oy * p.sy - p.py + ky * p.dy, x = ox * p.sx - p.px + kx * p.dx;
        if (!p.inside(y, x)) continue;
        load_row<V>(src, p.at(n, c, y, x, p.h, p.w), value);
        for (int v = 0; v < V; v++) sum[v] += value[v];
      }
    const float count = p.count(oy, ox);
    for (int v = 0; v < V; v++) sum[v] /= count;
    store_row<V>(dst, i * V, sum);
  }
}

template <class T, int V> __global__ void avg_pool_diff(Pool p, const T *diff_dst, T *diff_src) {
  for (int64_t i = first_index(); i < p.n * p.c / V * p.h * p.w; i += index_stride()) {
    int64_t n, c;
    int y, x;
    p.split<V>(i, p.h, p.w, n, c, y, x);
    float sum[V] = {}, value[V];
    each_window(p, n, c, y, x, [&](int64_t at, int oy, int ox, int) {
      const float count = p.count(oy, ox);
      load_row<V>(diff_dst, at, value);
      for (int v = 0; v < V; v++) sum[v] += value[v] / count;
    });
    store_row<V>(diff_src, i * V, sum);
  }
}

// A thread iterates over the pixels of an image; adjacent threads have adjacent channels.
template <class T, int V> __global__ void global_avg(Pool p, const T *src, T *dst) {
  const int64_t pixels = p.h * p.w, pieces = p.c / V, step = p.nhwc ? p.c : 1;
  for (int64_t i = first_index(); i < p.n * pieces; i += index_stride()) {
    const int64_t first = p.nhwc ? i / pieces * pixels * p.c + i % pieces * V : i * pixels;
    float sum[V] = {}, value[V];
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
      load_row<V>(src, first + pixel * step, value);
      for (int v = 0; v < V; v++) sum[v] += value[v];
    }
    for (int v = 0; v < V; v++) sum[v] /= static_cast<float>(pixels);
    store_row<V>(dst, i * V, sum);
  }
}

template <class T, int V> __global__ void global_avg_diff(Pool p, const T *diff_dst, T *diff_src) {
  const float pixels = static_cast<float>(p.h * p.w);
  for (int64_t i = first_index(); i < p.n * p.c / V * p.h * p.w; i += index_stride()) {
    int64_t n, c;
    int y, x;
    p.split<V>(i, p.h, p.w, n, c, y, x);
    float diff[V];
    load_row<V>(diff_dst, n * p.c + c, diff);
    for (int v = 0; v < V; v++) diff[v] /= pixels;
    store_row<V>(diff_src, i * V, diff);
  }
}

void set_images(Pool &p, const ht_spec &src, const ht_spec *dst) {
  p.n = src.dims[0], p.c = src.dims[1], p.h = src.dims[2], p.w = src.dims[3];
  if (dst) p.oh = dst->dims[2], p.ow = dst->dims[3];
}

Pool pool_of(const Request &request, const ht_spec &src, const ht_spec &dst) {
  const auto &q = *static_cast<const ht_pool2d_params *>(request.params);
  Pool p{};
  set_images(p, src, &dst);
  p.kh = q.kernel[0], p.kw = q.kernel[1], p.sy = q.stride[0], p.sx = q.stride[1];
  p.py = q.padding[0], p.px = q.padding[1], p.dy = q.dilation[0], p.dx = q.dilation[1];
  p.count_padding = q.count_padding != 0;
  if (int64_t{p.kh} * p.kw > 32767)
    throw Unsupported("window: got " + std::to_string(int64_t{p.kh} * p.kw) + " pixels, want at most 32767");
  return p;
}

// Launches the kernel for n elements of an image of T, in packs if possible.
template <class T>
void launch_wide(const Pool &p, int64_t n, const Args &x, void (*packs)(Pool, const T *, T *),
                 void (*each)(Pool, const T *, T *)) {
  const bool wide = p.packs<T>({x.in[0], x.out[0]});
  launch(wide ? packs : each, over(wide ? n / Pack<T>::size : n), x.queue, p, static_cast<const T *>(x.in[0]),
         static_cast<T *>(x.out[0]));
}

Specced given(const Request &request) {
  Specced k;
  k.in = request.in;
  k.out = request.out;
  return k;
}

} // namespace

std::unique_ptr<Kernel> make_max_pool2d(const Request &request) {
  Specced k = given(request);
  Pool p = pool_of(request, k.in[0], k.out[0]);
  p.nhwc = choose_image_layout(k, request, {0}, {0});
  const bool train = k.out.size() == 2;
  if (train) {
    k.out[1] = opaque_spec(elements(k.out[0]) * 2);
    k.out[1].layout = k.out[0].layout;
  }
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [p, train](const Args &x) {
      int16_t *const argmax = train ? static_cast<int16_t *>(x.out[1]) : nullptr;
      constexpr int most = Pack<T>::size;
      const bool wide = p.packs<T>({x.in[0], x.out[0], argmax});
      launch(wide ? max_pool<T, most> : max_pool<T, 1>, over(p.n * p.c * p.oh * p.ow / (wide ? most : 1)), x.queue, p,
             static_cast<const T *>(x.in[0]), static_cast<T *>(x.out[0]), argmax);
    });
  });
}

std::unique_ptr<Kernel> make_max_pool2d_diff(const Request &request) {
  Specced k = given(request);
  Pool p = pool_of(request, k.out[0], k.in[0]);
  p.nhwc = choose_image_layout(k, request, {0}, {0}, 1);
  if (k.in[1].bytes != elements(k.in[0]) * 2)
    throw Invalid("argmax: got " + std::to_string(k.in[1].bytes) + " bytes, want " +
                  std::to_string(elements(k.in[0]) * 2));
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [p](const Args &x) {
      constexpr int most = Pack<T>::size;
      const bool wide = p.packs<T>({x.in[0], x.in[1], x.out[0]});
      launch(wide ? max_pool_diff<T, most> : max_pool_diff<T, 1>, over(p.n * p.c * p.h * p.w / (wide ? most : 1)),
             x.queue, p, static_cast<const T *>(x.in[0]), static_cast<const int16_t *>(x.in[1]),
             static_cast<T *>(x.out[0]));
    });
  });
}

std::unique_ptr<Kernel> make_avg_pool2d(const Request &request) {
  Specced k = given(request);
  Pool p = pool_of(request, k.in[0], k.out[0]);
  p.nhwc = choose_image_layout(k, request, {0}, {0});
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [p](const Args &x) {
      launch_wide<T>(p, p.n * p.c * p.oh * p.ow, x, avg_pool<T, Pack<T>::size>, avg_pool<T, 1>);
    });
  });
}

std::unique_ptr<Kernel> make_avg_pool2d_diff(const Request &request) {
  Specced k = given(request);
  Pool p = pool_of(request, k.out[0], k.in[0]);
  p.nhwc = choose_image_layout(k, request, {0}, {0});
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [p](const Args &x) {
      launch_wide<T>(p, p.n * p.c * p.h * p.w, x, avg_pool_diff<T, Pack<T>::size>, avg_pool_diff<T, 1>);
    });
  });
}

std::unique_ptr<Kernel> make_global_avg_pool(const Request &request) {
  Specced k = given(request);
  Pool p{};
  set_images(p, k.in[0], nullptr);
  p.nhwc = choose_image_layout(k, request, {0}, {});
  k.out[0] = with_layout(k.out[0], HT_LAYOUT_PLAIN);
  return with_float(k.in[0], [&](auto type) {
    using T = decltype(type);
    return launcher(
        k, [p](const Args &x) { launch_wide<T>(p, p.n * p.c, x, global_avg<T, Pack<T>::size>, global_avg<T, 1>); });
  });
}

std::unique_ptr<Kernel> make_global_avg_pool_diff(const Request &request) {
  Specced k = given(request);
  Pool p{};
  set_images(p, k.out[0], nullptr);
  p.nhwc = choose_image_layout(k, request, {}, {0});
  k.in[0] = with_layout(k.in[0], HT_LAYOUT_PLAIN);
  return with_float(k.out[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [p](const Args &x) {
      launch_wide<T>(p, p.n * p.c * p.h * p.w, x, global_avg_diff<T, Pack<T>::size>, global_avg_diff<T, 1>);
    });
  });
}

} // namespace hetero
