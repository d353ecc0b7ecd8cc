// batchnorm.cu: batch normalisation over groups of samples, forward and backward, split where ranks exchange
// statistics. op_batchnorm.go contains the formulas.
//
// A row is the channels of one pixel. In nhwc a row is contiguous, and a thread processes 16 bytes of channels. The
// thread keeps the parameters of these channels in registers while it iterates over the rows of its chunk. Plain images
// are processed element by element.
//
// Sums have three levels. A thread sums its rows in f32, and a block adds the sums of its threads pairwise. Then 32
// threads per channel add the sums of the blocks in f64, again pairwise. The order of additions depends only on the
// shape.
//
// The mask of BN+add+ReLU has one byte for 16 bytes of a row (for one element in plain). Bit v belongs to channel v of
// these 16 bytes.
#include <cmath>

#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

struct Norm {
  int64_t samples, channels, pixels;
  int64_t group; // samples of a group
  int groups;
  bool nhwc, relu, add, two, running; // running: statistics are (C), not (G, C)
  float eps;
  int64_t full_count; // for diff_apply: values per channel in a full group; 0: computed from the group
  int64_t chunks;     // blocks that divide the rows of a group
  int lanes;          // threads of a block that are adjacent in a row

  int64_t rows_of(int64_t g) const {
    const int64_t first = g * group, end = first + group < samples ? first + group : samples;
    return (end - first) * pixels;
  }
};

// The work of one thread: V channels from c on, in the rows first, first + step, … below end.
template <int V> struct Span {
  int64_t c, first, end, step, g;
  bool any; // whether this thread has channels
};

template <int V> __device__ Span<V> span_of(const Norm &b) {
  Span<V> s;
  s.g = blockIdx.z;
  const int lane = threadIdx.x % b.lanes, row = threadIdx.x / b.lanes, rows = blockDim.x / b.lanes;
  s.c = (int64_t{blockIdx.x} * b.lanes + lane) * V;
  s.any = s.c < b.channels;
  const int64_t begin = s.g * b.group * b.pixels;
  const int64_t last = (s.g + 1) * b.group < b.samples ? (s.g + 1) * b.group : b.samples;
  s.first = begin + int64_t{blockIdx.y} * rows + row;
  s.end = last * b.pixels;
  s.step = int64_t{gridDim.y} * rows;
  return s;
}

// The offset of channel c of a row.
__device__ int64_t place(const Norm &b, int64_t row, int64_t c) {
  return b.nhwc ? row * b.channels + c : (row / b.pixels * b.channels + c) * b.pixels + row % b.pixels;
}

// Statistics and parameters of V channels, for one group.
template <int V> struct Channels {
  float mean[V], inverse[V], gamma[V], beta[V];

  __device__ Channels(const Norm &b, const Span<V> &s, const float *m, const float *var, const float *ga,
                      const float *be) {
    for (int v = 0; v < V; v++) {
      const int64_t c = s.any ? s.c + v : 0, at = b.running ? c : s.g * b.channels + c;
      mean[v] = m[at];
      inverse[v] = 1 / sqrtf(var[at] + b.eps);
      gamma[v] = ga[c];
      beta[v] = be[c];
    }
  }
  __device__ float normalized(int v, float x) const { return (x - mean[v]) * inverse[v]; }
  __device__ float scaled(int v, float x) const { return gamma[v] * normalized(v, x) + beta[v]; }
};

// Adds a[v] and other[v] over the threads of a block with the same channels, and writes partial[chunk][g][0 and 1][c].
template <int V>
__device__ void write_partial(const Norm &b, const Span<V> &s, const float *a, const float *other, float *partial) {
  __shared__ float sums[2 * V][kThreads];
  for (int v = 0; v < V; v++) {
    sums[v][threadIdx.x] = a[v];
    sums[V + v][threadIdx.x] = other[v];
  }
  __syncthreads();
  for (int half = blockDim.x / 2; half >= b.lanes; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half)
      for (int v = 0; v < 2 * V; v++) sums[v][threadIdx.x] += sums[v][threadIdx.x + half];
    __syncthreads();
  }
  if (static_cast<int>(threadIdx.x) >= b.lanes || !s.any) return;
  float *out = partial + (int64_t{blockIdx.y} * b.groups + s.g) * 2 * b.channels + s.c;
  for (int v = 0; v < V; v++) {
    out[v] = sums[v][threadIdx.x];
    out[b.channels + v] = sums[V + v][threadIdx.x];
  }
}

// Sums of x - x0 and of its square, where x0 is the group's first row. The difference avoids cancellation if the mean
// is far from zero.
template <class T, int V> __global__ void stats(Norm b, const T *x, float *partial) {
  const Span<V> s = span_of<V>(b);
  float sum[V] = {}, squares[V] = {}, origin[V], row[V];
  if (s.any) {
    load_row<V>(x, place(b, s.g * b.group * b.pixels, s.c), origin);
    for (int64_t r = s.first; r < s.end; r += s.step) {
      load_row<V>(x, place(b, r, s.c), row);
      for (int v = 0; v < V; v++) {
        const float d = row[v] - origin[v];
        sum[v] += d;
        squares[v] += d * d;
      }
    }
  }
  write_partial<V>(b, s, sum, squares, partial);
}

// Threads of a block that add the partial sums of one channel. There may be thousands of sums and few channels.
constexpr int kLanes = 32, kChannels = kThreads / kLanes;

inline Grid one_block_each(int64_t channels) { return {(channels + kChannels - 1) / kChannels}; }

// The channel i = g·C + c of this thread. A block has kChannels adjacent channels, so it reads whole sectors of memory.
__device__ int64_t finished_channel() { return int64_t{blockIdx.x} * kChannels + threadIdx.x % kChannels; }

// The two sums of channel i over all chunks. Each lane adds every 32nd partial sum, then the sums of the lanes are
// added pairwise. The result is valid in lane 0. All threads of the block must call add_up.
__device__ void add_up(const Norm &b, int64_t i, const float *partial, double *first, double *second) {
  __shared__ double sums[2][kThreads];
  const int own = static_cast<int>(threadIdx.x), lane = own / kChannels;
  double a = 0, other = 0;
  if (i < b.groups * b.channels) {
    const float *p = partial + (i / b.channels) * 2 * b.channels + i % b.channels;
    const int64_t step = b.groups * 2 * b.channels;
    for (int64_t chunk = lane; chunk < b.chunks; chunk += kLanes) {
      a += p[chunk * step];
      other += p[chunk * step + b.channels];
    }
  }
  sums[0][own] = a;
  sums[1][own] = other;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane >= half) continue;
    sums[0][own] += sums[0][own + half * kChannels];
    sums[1][own] += sums[1][own + half * kChannels];
  }
  *first = sums[0][own];
  *second = sums[1][own];
}

__device__ bool finishes(const Norm &b, int64_t i) {
  return static_cast<int>(threadIdx.x) < kChannels && i < b.groups * b.channels;
}

__device__ double count_of(const Norm &b, int64_t g) {
  const int64_t last = (g + 1) * b.group < b.samples ? (g + 1) * b.group : b.samples, own = last - g * b.group;
  return b.full_count > 0 && own == (b.group < b.samples ? b.group : b.samples) ? static_cast<double>(b.full_count)
                                                                                : static_cast<double>(own * b.pixels);
}

template <class T> __global__ void finish_stats(Norm b, const T *x, const float *partial, float *mean, float *var) {
  const int64_t i = finished_channel();
  double sum, squares;
  add_up(b, i, partial, &sum, &squares);
  if (!finishes(b, i)) return;
  const int64_t g = i / b.channels;
  const double n = count_of(b, g), d = sum / n, spread = squares / n - d * d;
  mean[i] = static_cast<float>(load(x + place(b, g * b.group * b.pixels, i % b.channels)) + d);
  var[i] = static_cast<float>(spread < 0 ? 0 : spread); // NaN stays NaN
}

// The first sum is that of dz·(x - mean). The factor 1/sqrt(var + eps) of x̂ is applied here.
__global__ void finish_sums(Norm b, const float *partial, const float *var, float *diff_gamma, float *diff_beta) {
  const int64_t i = finished_channel();
  double first, second;
  add_up(b, i, partial, &first, &second);
  if (!finishes(b, i)) return;
  diff_gamma[i] = static_cast<float>(first / sqrt(static_cast<double>(var[i]) + static_cast<double>(b.eps)));
  diff_beta[i] = static_cast<float>(second);
}

template <class T, int V>
__global__ void apply(Norm b, const T *x, const float *mean, const float *var, const float *gamma, const float *beta,
                      const T *residual, T *y, uint8_t *mask) {
  const Span<V> s = span_of<V>(b);
  if (!s.any) return;
  const Channels<V> of(b, s, mean, var, gamma, beta);
  float row[V], other[V] = {};
  for (int64_t r = s.first; r < s.end; r += s.step) {
    const int64_t at = place(b, r, s.c);
    load_row<V>(x, at, row);
    if (b.add) load_row<V>(residual, at, other);
    unsigned bits = 0;
    for (int v = 0; v < V; v++) {
      float z = of.scaled(v, row[v]);
      if (b.add) z += other[v];
      bits |= (z > 0 ? 1u : 0u) << v;
      row[v] = b.relu && z < 0 ? 0 : z; // NaN stays NaN
    }
    store_row<V>(y, at, row);
    if (mask) mask[(r * b.channels + s.c) / V] = static_cast<uint8_t>(bits);
  }
}

template <class T, int V>
__global__ void diff_reduce(Norm b, const T *x, const float *mean, const float *var, const float *gamma,
                            const float *beta, const T *diff_y, const T *diff_y2, const uint8_t *mask, T *dz,
                            float *partial) {
  const Span<V> s = span_of<V>(b);
  const Channels<V> of(b, s, mean, var, gamma, beta);
  float by_x[V] = {}, sum[V] = {}, row[V], diff[V], other[V] = {};
  for (int64_t r = s.first; s.any && r < s.end; r += s.step) {
    const int64_t at = place(b, r, s.c);
    load_row<V>(x, at, row);
    load_row<V>(diff_y, at, diff);
    if (b.two) load_row<V>(diff_y2, at, other);
    const unsigned bits = mask ? mask[(r * b.channels + s.c) / V] : 0;
    for (int v = 0; v < V; v++) {
      if (b.two) diff[v] += other[v];
      if (b.relu && !(mask ? bits >> v & 1 : of.scaled(v, row[v]) > 0)) diff[v] = 0;
      by_x[v] += diff[v] * (row[v] - of.mean[v]);
      sum[v] += diff[v];
    }
    if (dz) store_row<V>(dz, at, diff);
  }
  write_partial<V>(b, s, by_x, sum, partial);
}

template <class T, int V>
__global__ void diff_apply(Norm b, const T *x, const float *mean, const float *var, const float *gamma,
                           const float *beta, const T *dz, const float *diff_gamma, const float *diff_beta, T *diff_x) {
  const Span<V> s = span_of<V>(b);
  if (!s.any) return;
  const Channels<V> of(b, s, mean, var, gamma, beta);
  const float n = static_cast<float>(count_of(b, s.g));
  float from_mean[V], from_var[V], factor[V], row[V], diff[V];
  for (int v = 0; v < V; v++) {
    from_mean[v] = diff_beta[s.g * b.channels + s.c + v] / n;
    from_var[v] = diff_gamma[s.g * b.channels + s.c + v] / n;
    factor[v] = of.gamma[v] * of.inverse[v];
  }
  for (int64_t r = s.first; r < s.end; r += s.step) {
    const int64_t at = place(b, r, s.c);
    load_row<V>(x, at, row);
    load_row<V>(dz, at, diff);
    for (int v = 0; v < V; v++) {
      const float d = b.relu && !(of.scaled(v, row[v]) > 0) ? 0 : diff[v];
      row[v] = factor[v] * (d - from_mean[v] - of.normalized(v, row[v]) * from_var[v]);
    }
    store_row<V>(diff_x, at, row);
  }
}

__global__ void merge(int64_t ranks, int64_t channels, const float *stats, const int32_t *samples, float *mean,
                      float *var) {
  for (int64_t c = first_index(); c < channels; c += index_stride()) {
    double n = 0, m = 0, m2 = 0;
    for (int64_t r = 0; r < ranks; r++) {
      const double k = samples[r];
      if (k == 0) continue;
      const double t = n + k, d = static_cast<double>(stats[2 * r * channels + c]) - m;
      m = m + d * k / t;
      m2 = m2 + static_cast<double>(stats[(2 * r + 1) * channels + c]) * k;
      m2 = m2 + d * d * n * k / t;
      n = t;
    }
    mean[c] = static_cast<float>(m);
    var[c] = static_cast<float>(m2 / n);
  }
}

// The op defines the order of operations, because results must be bit-equal on all kinds of devices.
__global__ void move_running(int64_t groups, int64_t channels, double momentum, const int64_t *counts,
                             const float *mean, const float *var, float *running_mean, float *running_var) {
  for (int64_t c = first_index(); c < channels; c += index_stride()) {
    double m = 0, v = 0;
    for (int64_t g = 0; g < groups; g++) {
      const double n = static_cast<double>(counts[g]);
      m = m + static_cast<double>(mean[g * channels + c]);
      v = v + static_cast<double>(var[g * channels + c]) * (n > 1 ? n / (n - 1) : 1);
    }
    if (m - m != 0 || v - v != 0) continue; // a skipped step must not change running statistics
    const double old_mean = running_mean[c], old_var = running_var[c], all = static_cast<double>(groups);
    running_mean[c] = static_cast<float>(old_mean + momentum * (m / all - old_mean));
    running_var[c] = static_cast<float>(old_var + momentum * (v / all - old_var));
  }
}

// --- the host's side ---

// Launches a kernel over rows. Grid dimension x covers the channels, y the chunks of rows, z the groups.
template <class... Params, class... Args>
void launch_rows(void (*kernel)(Params...), const Norm &b, int per_thread, void *queue, Args... args) {
  const int64_t owners = (b.channels + per_thread - 1) / per_thread;
  launch(kernel, Grid{(owners + b.lanes - 1) / b.lanes, b.chunks, b.groups, kThreads}, queue, args...);
}

// Calls body(type, V), where V is the number of channels per thread.
template <class Body> auto with_rows(const ht_spec &image, const Norm &b, Body body) {
  return with_float(image, [&](auto type) {
    constexpr int most = Pack<decltype(type)>::size;
    if (b.nhwc && b.channels % most == 0) return body(type, std::integral_constant<int, most>{});
    return body(type, std::integral_constant<int, 1>{});
  });
}

Norm norm_of(const Request &request, const ht_spec &x) {
  const auto &p = *static_cast<const ht_batch_norm_params *>(request.params);
  Norm b{};
  b.samples = x.dims[0], b.channels = x.dims[1], b.pixels = x.dims[2] * x.dims[3];
  b.group = p.group > 0 && p.group < b.samples ? p.group : b.samples;
  b.groups = static_cast<int>((b.samples + b.group - 1) / b.group);
  b.relu = p.relu != 0, b.add = p.add != 0, b.two = p.two != 0;
  b.eps = static_cast<float>(p.eps);
  b.full_count = p.count;
  return b;
}

// Divides the rows into chunks, for V channels per thread.
void cut(Norm &b, const ht_spec &x) {
  const int size = b.nhwc ? static_cast<int>(16 / dtype_size(x.dtype)) : 1;
  const int64_t owners = b.channels % size == 0 ? b.channels / size : b.channels;
  for (b.lanes = 1; b.lanes < 32 && b.lanes < owners; b.lanes *= 2) {
  }
  const int64_t rows = kThreads / b.lanes, columns = (owners + b.lanes - 1) / b.lanes;
  b.chunks = (b.rows_of(0) + rows * 16 - 1) / (rows * 16); // at least 16 rows per thread
  const int64_t most = 2048 / (columns * b.groups);
  if (b.chunks > most) b.chunks = most;
  if (b.chunks < 1) b.chunks = 1;
}

int64_t partial_bytes(const Norm &b) { return b.chunks * b.groups * 2 * b.channels * 4; }

int64_t mask_bytes(const Norm &b, const ht_spec &x) {
  const int size = static_cast<int>(16 / dtype_size(x.dtype));
  return elements(x) / (b.nhwc && b.channels % size == 0 ? size : 1);
}

Specced given(const Request &request) {
  Specced k;
  k.in = request.in;
  k.out = request.out;
  for (size_t i = 1; i < k.in.size() && i < 5; i++) {
    want_f32(k.in[i]);
    k.in[i] = with_layout(k.in[i], HT_LAYOUT_PLAIN);
  }
  return k;
}

void plain_outputs(Specced &k, std::initializer_list<int> out) {
  for (int i : out) {
    ht_spec &s = k.out[static_cast<size_t>(i)];
    if (s.layout != HT_LAYOUT_PLAIN && s.layout != HT_LAYOUT_ANY)
      throw Unsupported("statistics: got layout " + layout_name(s.layout) + ", want plain");
    s = with_layout(s, HT_LAYOUT_PLAIN);
  }
}

const float *floats(void *p) { return static_cast<const float *>(p); }

} // namespace

std::unique_ptr<Kernel> make_batch_norm_stats(const Request &request) {
  Specced k = given(request);
  Norm b = norm_of(request, k.in[0]);
  b.nhwc = choose_image_layout(k, request, {0}, {});
  plain_outputs(k, {0, 1});
  cut(b, k.in[0]);
  k.workspace = partial_bytes(b);
  return with_rows(k.in[0], b, [&](auto type, auto size) {
    using T = decltype(type);
    constexpr int V = decltype(size)::value;
    return launcher(k, [b](const Args &a) {
      const auto *x = static_cast<const T *>(a.in[0]);
      auto *partial = static_cast<float *>(a.workspace);
      launch_rows(stats<T, V>, b, V, a.queue, b, x, partial);
      launch(finish_stats<T>, one_block_each(b.groups * b.channels), a.queue, b, x, partial,
             static_cast<float *>(a.out[0]), static_cast<float *>(a.out[1]));
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm_merge(const Request &request) {
  Specced k;
  take_plain(k, request);
  want_f32(k.in[0]);
  const int64_t ranks = k.in[0].dims[0], channels = k.in[0].dims[2];
  return launcher(k, [=](const Args &a) {
    launch(merge, over(channels), a.queue, ranks, channels, floats(a.in[0]), static_cast<const int32_t *>(a.in[1]),
           static_cast<float *>(a.out[0]), static_cast<float *>(a.out[1]));
  });
}

std::unique_ptr<Kernel> make_batch_norm_apply(const Request &request) {
  Specced k = given(request);
  Norm b = norm_of(request, k.in[0]);
  b.running = k.in[1].ndim == 1;
  if (b.running) b.group = b.samples, b.groups = 1;
  b.nhwc = b.add ? choose_image_layout(k, request, {0, 5}, {0}) : choose_image_layout(k, request, {0}, {0});
  const bool masks = k.out.size() == 2;
  if (masks) {
    k.out[1] = opaque_spec(mask_bytes(b, k.in[0]));
    k.out[1].layout = k.out[0].layout;
  }
  k.inplace = {{0, 0}};
  if (b.add) k.inplace.push_back({0, 5});
  cut(b, k.in[0]);
  return with_rows(k.in[0], b, [&](auto type, auto size) {
    using T = decltype(type);
    constexpr int V = decltype(size)::value;
    return launcher(k, [b, masks](const Args &a) {
      launch_rows(apply<T, V>, b, V, a.queue, b, static_cast<const T *>(a.in[0]), floats(a.in[1]), floats(a.in[2]),
                  floats(a.in[3]), floats(a.in[4]), b.add ? static_cast<const T *>(a.in[5]) : nullptr,
                  static_cast<T *>(a.out[0]), masks ? static_cast<uint8_t *>(a.out[1]) : nullptr);
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm_diff_reduce(const Request &request) {
  Specced k = given(request);
  Norm b = norm_of(request, k.in[0]);
  const bool masks = b.relu && b.add, writes = k.out.size() == 3;
  const int made_for = masks ? static_cast<int>(k.in.size()) - 1 : -1;
  if (writes)
    b.nhwc = b.two ? choose_image_layout(k, request, {0, 5, 6}, {2}, made_for)
                   : choose_image_layout(k, request, {0, 5}, {2}, made_for);
  else
    b.nhwc = choose_image_layout(k, request, {0, 5}, {}, made_for);
  plain_outputs(k, {0, 1});
  if (masks && k.in.back().bytes != mask_bytes(b, k.in[0]))
    throw Invalid("mask: got " + std::to_string(k.in.back().bytes) + " bytes, want " +
                  std::to_string(mask_bytes(b, k.in[0])));
  if (writes) {
    k.inplace = {{2, 5}};
    if (b.two) k.inplace.push_back({2, 6});
  }
  cut(b, k.in[0]);
  k.workspace = partial_bytes(b);
  return with_rows(k.in[0], b, [&](auto type, auto size) {
    using T = decltype(type);
    constexpr int V = decltype(size)::value;
    return launcher(k, [b, masks, writes](const Args &a) {
      auto *partial = static_cast<float *>(a.workspace);
      launch_rows(diff_reduce<T, V>, b, V, a.queue, b, static_cast<const T *>(a.in[0]), floats(a.in[1]),
                  floats(a.in[2]), floats(a.in[3]), floats(a.in[4]), static_cast<const T *>(a.in[5]),
                  b.two ? static_cast<const T *>(a.in[6]) : nullptr,
                  masks ? static_cast<const uint8_t *>(a.in[b.two ? 7 : 6]) : nullptr,
                  writes ? static_cast<T *>(a.out[2]) : nullptr, partial);
      launch(finish_sums, one_block_each(b.groups * b.channels), a.queue, b, partial, floats(a.in[2]),
             static_cast<float *>(a.out[0]), static_cast<float *>(a.out[1]));
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm_diff_apply(const Request &request) {
  Specced k = given(request);
  Norm b = norm_of(request, k.in[0]);
  b.nhwc = choose_image_layout(k, request, {0, 5}, {0});
  for (size_t i : {6, 7}) k.in[i] = with_layout(k.in[i], HT_LAYOUT_PLAIN);
  k.inplace = {{0, 0}, {0, 5}};
  cut(b, k.in[0]);
  return with_rows(k.in[0], b, [&](auto type, auto size) {
    using T = decltype(type);
    constexpr int V = decltype(size)::value;
    return launcher(k, [b](const Args &a) {
      launch_rows(diff_apply<T, V>, b, V, a.queue, b, static_cast<const T *>(a.in[0]), floats(a.in[1]), floats(a.in[2]),
                  floats(a.in[3]), floats(a.in[4]), static_cast<const T *>(a.in[5]), floats(a.in[6]), floats(a.in[7]),
                  static_cast<T *>(a.out[0]));
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm_running(const Request &request) {
  const auto &p = *static_cast<const ht_batch_norm_running_params *>(request.params);
  Specced k;
  take_plain(k, request);
  for (const ht_spec &s : k.in) want_f32(s);
  const int64_t groups = p.groups, channels = k.in[0].dims[0];
  if (groups != k.in[2].dims[0])
    throw Invalid("counts: got " + std::to_string(groups) + ", want " + std::to_string(k.in[2].dims[0]) +
                  " (one per group of the mean " + describe(k.in[2]) + ")");
  const double momentum = p.momentum;
  const Table counts(p.counts, static_cast<size_t>(groups) * sizeof(int64_t));
  return launcher(k, [=](const Args &a) {
    launch(move_running, over(channels), a.queue, groups, channels, momentum, counts.as<int64_t>(), floats(a.in[2]),
           floats(a.in[3]), static_cast<float *>(a.out[0]), static_cast<float *>(a.out[1]));
  });
}

} // namespace hetero
