// batchnorm.cu: two experiments, compared with the kernels of cuda/src/batchnorm.cu.
//
//   - Statistics of each channel: variants differ in the shape of blocks, in the number of rows in flight, and in the
//     number of threads that add the blocks' sums of a channel.
//   - Batch normalisation with ReLU: variants differ in the number of rows in flight.
#include <algorithm>

#include "lab.h"

namespace hetero::lab {
namespace {

constexpr double kEps = 1e-5;

// How blocks divide the rows, as in cuda/src. In a block, `lanes` adjacent threads read adjacent channels of a row, 16
// bytes each. `columns` blocks together cover all channels. The `chunks` blocks with the same channels alternate rows.
struct Rows {
  int64_t rows, channels, columns, chunks; // chunks: number of blocks with the same channels
  int lanes, threads;                      // of a block

  Grid grid() const { return {columns, chunks, 1, threads}; }
};

// Returns a division of the rows, with at most `lanes` lanes, at least `least` rows per thread, and at most `most`
// blocks. The defaults are those of cuda/src.
Rows divide(const Images &images, int threads, int lanes = 32, int64_t least = 16, int64_t most = 2048) {
  Rows b{images.rows(), images.channels, 0, 0, 1, threads};
  const int64_t owners = images.channels * dtype_size(images.dtype) / 16;
  while (b.lanes < lanes && b.lanes < owners) b.lanes *= 2;
  const int64_t rows = threads / b.lanes * least;
  b.columns = (owners + b.lanes - 1) / b.lanes;
  b.chunks = std::max<int64_t>(1, std::min((b.rows + rows - 1) / rows, most / b.columns));
  return b;
}

// The part of a thread: V channels from c on, of the rows first, first + step, … below end.
struct Span {
  int64_t c, first, step, end;
};

template <int V> __device__ Span span_of(const Rows &b) {
  const int lane = threadIdx.x % b.lanes, row = threadIdx.x / b.lanes, rows = blockDim.x / b.lanes;
  const int64_t c = (int64_t{blockIdx.x} * b.lanes + lane) * V, first = int64_t{blockIdx.y} * rows + row;
  return {c, first, int64_t{gridDim.y} * rows, c < b.channels ? b.rows : 0}; // 0: this thread has no channels
}

template <class T> __device__ const Pack<T> &pack_at(const T *p) { return *reinterpret_cast<const Pack<T> *>(p); }

// Writes the sums of x - x0 to partial[chunk][0][c], and the sums of (x - x0)² to partial[chunk][1][c]. x0 is row 0.
template <class T, int Threads, int K> __global__ void sum_rows(Rows b, const T *x, float *partial) {
  constexpr int V = Pack<T>::size;
  __shared__ float sums[2 * V][Threads];
  const Span s = span_of<V>(b);
  float sum[2 * V] = {};
  const Pack<T> origin = pack_at(x + (s.end ? s.c : 0));
  for (int64_t r = s.first; r < s.end; r += K * s.step) {
    Pack<T> p[K]; // beyond the end, read row 0, which adds 0
    for (int k = 0; k < K; k++) p[k] = pack_at(x + (r + k * s.step < s.end ? r + k * s.step : 0) * b.channels + s.c);
    for (int k = 0; k < K; k++)
      for (int v = 0; v < V; v++) {
        const float d = load(&p[k].v[v]) - load(&origin.v[v]);
        sum[v] += d;
        sum[V + v] += d * d;
      }
  }
  const int thread = static_cast<int>(threadIdx.x);
  for (int v = 0; v < 2 * V; v++) sums[v][thread] = sum[v];
  __syncthreads();
  for (int half = Threads / 2; half >= b.lanes; half /= 2) {
    if (thread < half)
      for (int v = 0; v < 2 * V; v++) sums[v][thread] += sums[v][thread + half];
    __syncthreads();
  }
  if (thread >= b.lanes || !s.end) return;
  float *out = partial + int64_t{blockIdx.y} * 2 * b.channels + s.c;
  for (int v = 0; v < 2 * V; v++) out[v < V ? v : b.channels + v - V] = sums[v][thread];
}

// Adds the sums of all blocks for each channel. A channel has a team of threads: one thread, as in cuda/src, or a warp.
// Writes the means to out[0][c], and the variances to out[1][c].
template <class T, int Team> __global__ void finish(Rows b, const T *x, const float *partial, float *out) {
  for (int64_t c = first_index() / Team; c < b.channels; c += index_stride() / Team) {
    double sum = 0, squares = 0;
    for (int64_t chunk = threadIdx.x % Team; chunk < b.chunks; chunk += Team) {
      sum += static_cast<double>(partial[chunk * 2 * b.channels + c]);
      squares += static_cast<double>(partial[(chunk * 2 + 1) * b.channels + c]);
    }
    for (int lane = Team / 2; lane > 0; lane /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, lane);
      squares += __shfl_xor_sync(0xffffffffu, squares, lane);
    }
    if (threadIdx.x % Team) continue;
    const double n = static_cast<double>(b.rows), d = sum / n;
    out[c] = static_cast<float>(static_cast<double>(load(x + c)) + d);
    out[b.channels + c] = static_cast<float>(squares / n - d * d);
  }
}

// Computes y, batch normalisation with ReLU. parameters (4, C) has mean, var, gamma and beta.
template <class T, int K> __global__ void apply_rows(Rows b, const T *x, const float *parameters, T *y) {
  constexpr int V = Pack<T>::size;
  const Span s = span_of<V>(b);
  if (!s.end) return;
  float mean[V], inverse[V], gamma[V], beta[V];
  for (int v = 0; v < V; v++) {
    const float *of = parameters + s.c + v;
    mean[v] = of[0];
    inverse[v] = 1 / sqrtf(of[b.channels] + static_cast<float>(kEps));
    gamma[v] = of[2 * b.channels];
    beta[v] = of[3 * b.channels];
  }
  for (int64_t r = s.first; r < s.end; r += K * s.step) {
    Pack<T> p[K];
    for (int k = 0; k < K; k++) p[k] = pack_at(x + (r + k * s.step < s.end ? r + k * s.step : r) * b.channels + s.c);
    for (int k = 0; k < K; k++) {
      for (int v = 0; v < V; v++) {
        const float z = gamma[v] * ((load(&p[k].v[v]) - mean[v]) * inverse[v]) + beta[v];
        store(&p[k].v[v], z < 0 ? 0 : z); // NaN stays NaN
      }
      if (r + k * s.step < s.end) *reinterpret_cast<Pack<T> *>(y + (r + k * s.step) * b.channels + s.c) = p[k];
    }
  }
}

// --- the host's side ---

// Returns the variant that runs the kernel of cuda/src. `keep` is memory that the kernel reads, and lives as long as
// the variant.
Variant present(std::unique_ptr<Kernel> made, std::vector<void *> in, std::vector<void *> out, const Memory &keep) {
  const std::shared_ptr<Kernel> kernel = std::move(made);
  const Memory workspace(kernel->workspace + 1);
  return {"cuda/src", [=] {
            (void)keep;
            kernel->run(Args{in.data(), out.data(), workspace.as<void>(), nullptr});
          }};
}

template <class T, int Threads, int K, int Team>
Variant stats(const char *name, const Input &input, void *to, const Rows &b) {
  const Memory partial(b.chunks * 2 * b.channels * 4);
  const T *x = input.device.as<T>();
  return {name, [=] {
            launch(sum_rows<T, Threads, K>, b.grid(), nullptr, b, x, partial.as<float>());
            launch(finish<T, Team>, over(b.channels * Team), nullptr, b, x, partial.as<float>(),
                   static_cast<float *>(to));
          }};
}

template <class T, int K> Variant apply(const Input &input, const Memory &parameters, void *to) {
  const Rows b = divide(input.images, kThreads);
  const T *x = input.device.as<T>();
  return {std::to_string(K) + " in flight",
          [=] { launch(apply_rows<T, K>, b.grid(), nullptr, b, x, parameters.as<float>(), static_cast<T *>(to)); }};
}

// Returns the largest error. The error of a mean is in standard deviations, and that of a variance is relative to the
// variance.
template <class T> auto stats_error(const Input &input) {
  const size_t channels = static_cast<size_t>(input.images.channels);
  const double n = static_cast<double>(input.images.rows());
  std::vector<double> sum(channels), squares(channels);
  const T *x = reinterpret_cast<const T *>(input.host.data());
  for (int64_t r = 0; r < input.images.rows(); r++)
    for (size_t c = 0; c < channels; c++) {
      const double v = static_cast<double>(load(x++));
      sum[c] += v;
      squares[c] += v * v;
    }
  return [=](const char *result) {
    const float *got = reinterpret_cast<const float *>(result);
    double error = 0;
    for (size_t c = 0; c < channels; c++) {
      const double mean = sum[c] / n, var = squares[c] / n - mean * mean;
      error = worst(std::fabs(static_cast<double>(got[c]) - mean) / std::sqrt(var), error);
      error = worst(std::fabs(static_cast<double>(got[channels + c]) / var - 1), error);
    }
    return error;
  };
}

// Returns the largest error, relative to the value, or to 1 if the value is less than 1.
template <class T> double apply_error(const Input &input, const std::vector<float> &parameters, const char *result) {
  const size_t channels = static_cast<size_t>(input.images.channels);
  const T *x = reinterpret_cast<const T *>(input.host.data()), *got = reinterpret_cast<const T *>(result);
  std::vector<double> of(parameters.begin(), parameters.end()); // mean, scale, gamma, beta
  for (size_t c = 0; c < channels; c++) of[channels + c] = of[2 * channels + c] / std::sqrt(of[channels + c] + kEps);
  double error = 0;
  for (int64_t r = 0; r < input.images.rows(); r++)
    for (size_t c = 0; c < channels; c++) {
      const double z = (static_cast<double>(load(x++)) - of[c]) * of[channels + c] + of[3 * channels + c];
      const double want = std::max(z, 0.0);
      error = worst(std::fabs(static_cast<double>(load(got++)) - want) / std::max(want, 1.0), error);
    }
  return error;
}

} // namespace

Trial batchnorm_stats(const Input &input, void *to) {
  return with_type(input.images, [&](auto type) -> Trial {
    using T = decltype(type);
    const Images &i = input.images;
    const ht_batch_norm_params params{};
    const ht_spec one = make_spec(HT_F32, {1, i.channels});
    auto *mean = static_cast<float *>(to);
    Trial t{i.bytes(), 8 * i.channels, 2e-5, {}, stats_error<T>(input)};
    t.variants = {
        present(make_batch_norm_stats({HT_BATCH_NORM_STATS, &params, {i.spec()}, {one, one}, 0}),
                {input.device.as<void>()}, {mean, mean + i.channels}, input.device),
        stats<T, 256, 1, 1>("256 threads, 1 row", input, to, divide(i, 256)),
        stats<T, 128, 1, 1>("128 threads", input, to, divide(i, 128)),
        stats<T, 512, 1, 1>("512 threads", input, to, divide(i, 512)),
        stats<T, 256, 1, 1>("8 lanes", input, to, divide(i, 256, 8)),
        stats<T, 256, 4, 1>("4 rows in flight", input, to, divide(i, 256)),
        stats<T, 256, 4, 1>("4 rows, 64 a thread", input, to, divide(i, 256, 32, 64)),
        stats<T, 256, 4, 1>("4 rows, 512 blocks", input, to, divide(i, 256, 32, 16, 512)),
        stats<T, 256, 1, 32>("a warp adds up", input, to, divide(i, 256)),
        stats<T, 256, 4, 32>("4 rows, a warp adds up", input, to, divide(i, 256)),
    };
    return t;
  });
}

Trial batchnorm_apply(const Input &input, void *to) {
  const int64_t c = input.images.channels;
  std::vector<float> parameters(static_cast<size_t>(4 * c));
  for (size_t i = 0; i < parameters.size(); i++) parameters[i] = 0.25f + 0.25f * static_cast<float>(i % 7);
  const Memory device(parameters);
  return with_type(input.images, [&](auto type) -> Trial {
    using T = decltype(type);
    ht_batch_norm_params params{};
    params.relu = 1;
    params.eps = kEps;
    const ht_spec x = input.images.spec(), one = make_spec(HT_F32, {1, c}), list = make_spec(HT_F32, {c});
    float *p = device.as<float>();
    // bf16: rounding changes a value by at most the fraction 2^-8.
    Trial t{2 * x.bytes, x.bytes, sizeof(T) == 4 ? 4e-6 : 1.01 / 256, {}, {}};
    t.variants = {present(make_batch_norm_apply({HT_BATCH_NORM_APPLY, &params, {x, one, one, list, list}, {x}, 0}),
                          {input.device.as<void>(), p, p + c, p + 2 * c, p + 3 * c}, {to}, device),
                  apply<T, 1>(input, device, to), apply<T, 2>(input, device, to), apply<T, 4>(input, device, to)};
    t.error = [&input, parameters](const char *result) { return apply_error<T>(input, parameters, result); };
    return t;
  });
}

} // namespace hetero::lab
