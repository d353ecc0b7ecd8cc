// linear.cu: Linear and its gradients. cuBLASLt computes the products. Kernels of this file cast operands, add a bias,
// and sum rows.
//
// Row-major operands: src (N, I), weight (O, I), dst (N, O). T is the type of src and weight. cuBLASLt is column-major,
// so it sees transposed matrices:
//
//     forward       dst (O, N)       = weight (I, O)ᵀ · src (I, N)
//     diff_src      diff_src (I, N)  = weight (I, O)  · diff_dst (O, N)
//     diff_weights  diff_w (I, O)    = src (I, N)     · diff_dst (O, N)ᵀ
//
// The call of cuBLASLt also adds the bias (O), or computes diff_bias (O), if that is faster. A gradient whose type
// differs from T is first rounded to T.
//
// For a bf16 or f16 dst, there are two ways to add a bias:
//
//   - In the product: the library adds a bias of dst's type, so a kernel rounds the bias first.
//   - After the product: the library writes to an f32 workspace; then a kernel adds the f32 bias and rounds.
//
// The first way accesses a fifth of the bytes of the result, and needs no f32 workspace.
#include <algorithm>
#include <functional>
#include <optional>

#include "channels.h"
#include "choices.h"
#include "gpu.h"
#include "linear.h"
#include "ops.h"
#include "pieces.h"
#include "product.h"

namespace hetero {
namespace {

constexpr int kAlign = 16; // usual alignment of addresses, bytes
// Version of this file's kernels, part of the key of a choice. Increase it if their speed changes.
constexpr int kVersion = 2;

// Computes partial (pieces, O) from src (N, O): the sum of the rows of each piece. `stride` is the number of elements
// from one row of src to the next. A block has one piece and 32·V columns. A thread adds every (kThreads/32)th row of V
// columns. Then the sums of the threads of a column are added pairwise.
template <int V, class E>
__global__ void sum_rows(int64_t rows, int64_t columns, int64_t stride, const E *src, float *partial) {
  __shared__ float part[kThreads][V];
  const int t = static_cast<int>(threadIdx.x);
  const int64_t column = (int64_t{blockIdx.x} * kColumns + t % kColumns) * V;
  const int64_t length = (rows + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * length,
                end = begin + length < rows ? begin + length : rows;
  float sum[V] = {}, value[V];
  if (column < columns)
    for (int64_t r = begin + t / kColumns; r < end; r += kThreads / kColumns) {
      load_row<V>(src, r * stride + column, value);
      for (int v = 0; v < V; v++) sum[v] += value[v];
    }
  for (int v = 0; v < V; v++) part[t][v] = sum[v];
  __syncthreads();
  for (int half = kThreads / 2; half >= kColumns; half /= 2) {
    if (t < half)
      for (int v = 0; v < V; v++) part[t][v] += part[t + half][v];
    __syncthreads();
  }
  if (t < kColumns && column < columns)
    for (int v = 0; v < V; v++) partial[blockIdx.y * columns + column + v] = part[t][v];
}

using Work = std::function<void(const void *from, const void *bias, void *to, void *queue)>;

// Sums the rows of a gradient. run needs `workspace` bytes of memory, at a multiple of 16.
struct RowSums {
  std::function<void(const void *from, void *sums, void *workspace, void *queue)>
      run; // empty if there is nothing to do
  int64_t workspace = 0;

  explicit operator bool() const { return static_cast<bool>(run); }
};

Work casting(const ht_spec &from, const ht_spec &to) {
  return [n = elements(from), type = from.dtype, wanted = to.dtype](
             const void *src, const void *, void *dst, void *queue) { cast(n, type, src, wanted, dst, queue); };
}

// Returns work that computes dst (N, O) = sums (N, O) + bias (O). sums is f32. Without a bias, it only converts. dst
// and sums may be the same memory.
Work adding_bias(const ht_spec &dst) {
  const Block to{dst.dtype, 1, dst.dims[0], dst.dims[1], true};
  Block from = to;
  from.dtype = HT_F32;
  return [=](const void *sums, const void *bias, void *out, void *queue) {
    refit(from, sums, to, out, static_cast<const float *>(bias), queue);
  };
}

RowSums summing_rows(const ht_spec &src, int64_t stride) {
  return with_float(src, [&](auto e) -> RowSums {
    using E = decltype(e);
    const int64_t rows = src.dims[0], columns = src.dims[1], pieces = pieces_of(rows);
    const auto run = [=](const void *from, void *sums, void *workspace, void *queue) {
      constexpr int V = Pack<E>::size;
      const bool wide = columns % V == 0 && stride % V == 0 && aligned({from});
      const int64_t across = kColumns * int64_t{wide ? V : 1};
      launch(wide ? sum_rows<V, E> : sum_rows<1, E>, Grid{(columns + across - 1) / across, pieces}, queue, rows,
             columns, stride, static_cast<const E *>(from), static_cast<float *>(workspace));
      add_pieces(pieces, columns, columns, static_cast<const float *>(workspace), static_cast<float *>(sums), queue);
    };
    return {run, pieces * columns * int64_t{sizeof(float)}};
  });
}

int64_t padded(int64_t bytes) { return (bytes + kProductAlign - 1) / kProductAlign * kProductAlign; }
char *padded(void *p) { return reinterpret_cast<char *>(padded(static_cast<int64_t>(reinterpret_cast<intptr_t>(p)))); }

struct Way {
  ProductShape shape;
  Algorithm algorithm;
};

// A product, and the kernels before and after it. The operands are A = in[a] and B = in[1 - a].
struct LinearKernel : Kernel {
  int a;
  Way fast;                    // for operands whose addresses are multiples of 16
  std::optional<Way> anywhere; // for operands at other addresses
  Work cast_b, finish;         // empty if there is nothing to do; a product with an epilogue needs no finish
  Work narrow_bias;            // rounds the bias for a product with an epilogue; empty if the bias is of D's type
  RowSums sums;                // run after the product, in the workspace of the product
  // Bytes in the workspace of the cast B, of an f32 D, and of the rounded bias.
  int64_t cast_bytes = 0, wide_bytes = 0, bias_bytes = 0;

  void run(const Args &x) override {
    const auto stream = static_cast<cudaStream_t>(x.queue);
    char *space = padded(x.workspace);
    ProductOperands p{x.in[a], x.in[1 - a], x.out[0], nullptr, nullptr};
    if (cast_b) {
      cast_b(p.b, nullptr, space, stream);
      p.b = space;
      space += cast_bytes;
    }
    char *const wide = space, *const rounded = wide + wide_bytes;
    p.workspace = rounded + bias_bytes;
    void *bias = in.size() == 3 ? x.in[2] : out.size() == 2 ? x.out[1] : nullptr;
    const auto result = [&](const Way &way) { return is_wide(way) ? wide : x.out[0]; };
    // If narrow_bias copies the bias, the product reads the copy, so the alignment of the bias does not matter.
    const bool well = aligned({p.a, p.b, result(fast), narrow_bias ? nullptr : bias});
    if (!well && !anywhere) throw std::runtime_error("an operand's address is not a multiple of 16");
    const Way &way = well ? fast : *anywhere;
    const bool in_one = way.shape.epilogue != ProductShape::none;
    p.d = result(way);
    p.bias = in_one ? bias : nullptr;
    if (in_one && narrow_bias) {
      narrow_bias(bias, nullptr, rounded, stream);
      p.bias = rounded;
    }
    run_product(way.shape, way.algorithm, p, stream);
    if (finish && !in_one) finish(p.d, bias, x.out[0], stream);
    if (sums && !in_one) sums.run(x.in[1 - a], bias, p.workspace, stream);
  }
  // Returns whether D is in the workspace.
  bool is_wide(const Way &way) const { return way.shape.result != out[0].dtype; }
};

// Chooses the fastest combination of a shape and an algorithm. The shapes differ in their epilogues. If a shape has no
// epilogue, kernels of this file add the bias, or sum the rows of the gradient. The measured times include these
// kernels and the rounding of the bias.
Way choose(const LinearKernel &k, const std::vector<ProductShape> &shapes) {
  const ProductShape &s = shapes.back();
  const ht_spec &gradient = k.in[size_t(1 - k.a)]; // B, or the tensor from which B is cast
  const int64_t a = padded(s.m * s.k * dtype_size(s.factors)),
                b = padded(std::max(s.b_extent() * dtype_size(s.factors), k.sums ? gradient.bytes : 0)),
                d = padded(s.m * s.n * dtype_size(s.result)),
                bias = padded(std::max(s.m, s.n) * int64_t{sizeof(float)}),
                dst = padded(k.wide_bytes ? k.out[0].bytes : 0);
  // The key contains the gradient's type: if the gradient is cast, a kernel sums the original type, and there is no
  // epilogue.
  const std::string version = " version " + std::to_string(kVersion),
                    rest = k.sums              ? version + " " + type_name(gradient.dtype) + " and sums"
                           : shapes.size() > 1 ? version + " and bias"
                                               : "";
  Comparison comparison{products_by(), s.text() + rest, a + b + d + bias + dst + k.bias_bytes, {}};
  std::vector<Way> ways;
  int64_t workspace = k.sums.workspace;
  for (const ProductShape &shape : shapes)
    for (const Algorithm &algorithm : algorithms_for(shape, kAlign)) {
      const bool in_one = shape.epilogue != ProductShape::none, wide = k.is_wide({shape, algorithm});
      const Work round = in_one ? k.narrow_bias : nullptr, finish = in_one ? nullptr : k.finish;
      const RowSums sums = in_one ? RowSums{} : k.sums;
      const int64_t bias_bytes = k.bias_bytes;
      auto attempt = [=](void *scratch, cudaStream_t stream) {
        char *const pa = static_cast<char *>(scratch), *const pb = pa + a, *const pd = pb + b, *const pbias = pd + d,
                    *const pdst = pbias + bias, *const rounded = pdst + dst, *const rest = rounded + bias_bytes;
        if (round) round(pbias, nullptr, rounded, stream);
        run_product(shape, algorithm, {pa, pb, wide || !dst ? pd : pdst, round ? rounded : pbias, rest}, stream);
        if (finish) finish(pd, pbias, dst ? pdst : pd, stream);
        if (sums) sums.run(pb, pbias, rest, stream);
      };
      comparison.candidates.push_back({(in_one ? "one pass " : "") + algorithm.name, [attempt] { return attempt; }});
      workspace = std::max(workspace, algorithm.workspace);
      ways.push_back({shape, algorithm});
    }
  if (ways.empty()) throw Unsupported("cuBLASLt has no algorithm for " + s.text());
  comparison.bytes += workspace;
  return ways[fastest(comparison)];
}

// Chooses how to compute the product; shapes are all suitable shapes. For operands at unaligned addresses, it selects
// an algorithm for the chosen shape. If there is none, it selects one for the last shape.
std::unique_ptr<Kernel> finished(std::unique_ptr<LinearKernel> k, const std::vector<ProductShape> &shapes) {
  k->fast = choose(*k, shapes);
  for (const ProductShape &shape : {k->fast.shape, shapes.back()}) {
    // Only aligned operands use sums in the call of the product; otherwise a kernel computes the sums.
    if (k->sums && shape.epilogue != ProductShape::none) continue;
    const auto careful = algorithms_for(shape, static_cast<int>(dtype_size(shape.factors)));
    if (k->anywhere || careful.empty()) continue;
    k->anywhere = Way{shape, careful[0]};
  }
  if (!k->is_wide(k->fast) && !(k->anywhere && k->is_wide(*k->anywhere))) k->wide_bytes = 0;
  const auto in_one = [](const Way &way) { return way.shape.epilogue != ProductShape::none; };
  if (!in_one(k->fast) && !(k->anywhere && in_one(*k->anywhere))) {
    k->narrow_bias = nullptr;
    k->bias_bytes = 0;
  }
  const int64_t products =
      std::max({k->fast.algorithm.workspace, k->anywhere ? k->anywhere->algorithm.workspace : 0, k->sums.workspace});
  k->workspace = k->cast_bytes + k->wide_bytes + k->bias_bytes + products;
  if (k->workspace > 0) k->workspace += kProductAlign - 64; // the address of workspace is a multiple of 64
  return k;
}

void want_fit(const ht_spec &src, const ht_spec &weight, const ht_spec &dst) {
  if (src.ndim != 2 || weight.ndim != 2 || dst.ndim != 2 || src.dims[0] != dst.dims[0] ||
      src.dims[1] != weight.dims[1] || dst.dims[1] != weight.dims[0])
    throw Invalid("the shapes of src " + describe(src) + ", weight " + describe(weight) + " and dst " + describe(dst) +
                  " do not match");
}

// Prepares a kernel whose B is a gradient. Casts a gradient whose type differs from A's.
std::unique_ptr<LinearKernel> with_gradient(const Request &r, int a, int64_t stride) {
  auto k = std::make_unique<LinearKernel>();
  take_plain(*k, r);
  k->a = a;
  const ht_spec &factor = k->in[size_t(a)], &gradient = k->in[size_t(1 - a)];
  if (stride < gradient.dims[1])
    throw Invalid("stride of diff_dst: got " + std::to_string(stride) + ", want at least the " +
                  std::to_string(gradient.dims[1]) + " outputs");
  if (gradient.dtype == factor.dtype) return k;
  if (stride != gradient.dims[1])
    throw Unsupported("diff_dst: got " + describe(gradient) + " with gaps between rows, want the type of " +
                      describe(factor));
  ht_spec to = gradient;
  to.dtype = factor.dtype;
  k->cast_b = casting(gradient, to);
  k->cast_bytes = padded(elements(to) * dtype_size(to.dtype));
  return k;
}

} // namespace

std::unique_ptr<Kernel> make_linear(const Request &r) {
  auto k = std::make_unique<LinearKernel>();
  take_plain(*k, r);
  k->a = 1;
  const ht_spec &src = k->in[0], &weight = k->in[1], &dst = k->out[0];
  want_fit(src, weight, dst);
  const bool bias = k->in.size() == 3;
  if (bias) want_f32(k->in[2]);
  const bool direct = dst.dtype == HT_F32 || (dst.dtype == src.dtype && !bias);
  const ProductShape plain{dst.dims[1], dst.dims[0], src.dims[1], src.dtype, direct ? dst.dtype : HT_F32, true, false};
  if (!direct) k->wide_bytes = padded(elements(dst) * int64_t{sizeof(float)});
  if (bias || !direct) k->finish = adding_bias(dst);
  if (!bias || (!direct && dst.dtype != src.dtype)) return finished(std::move(k), {plain});
  ProductShape in_one = plain;
  in_one.epilogue = ProductShape::bias;
  in_one.result = dst.dtype;
  if (algorithms_for(in_one, kAlign).empty()) return finished(std::move(k), {plain});
  if (direct) return finished(std::move(k), {in_one});
  ht_spec rounded = k->in[2];
  rounded.dtype = dst.dtype;
  k->narrow_bias = casting(k->in[2], rounded);
  k->bias_bytes = padded(elements(rounded) * dtype_size(rounded.dtype));
  return finished(std::move(k), {in_one, plain});
}

std::unique_ptr<Kernel> make_linear_diff_src(const Request &r) {
  auto k = with_gradient(r, 1, r.in[0].dims[1]);
  const ht_spec &diff_dst = k->in[0], &weight = k->in[1], &diff_src = k->out[0];
  want_fit(diff_src, weight, diff_dst);
  const ProductShape plain{
      diff_src.dims[1], diff_src.dims[0], diff_dst.dims[1], weight.dtype, diff_src.dtype, false, false};
  return finished(std::move(k), {plain});
}

std::unique_ptr<Kernel> make_linear_diff_weights(const Request &r) {
  return make_linear_diff_weights(r, r.in[1].dims[1], false);
}

std::unique_ptr<Kernel> make_linear_diff_weights(const Request &r, int64_t stride, bool add) {
  auto k = with_gradient(r, 0, stride);
  const ht_spec &src = k->in[0], &diff_dst = k->in[1], &diff_weight = k->out[0];
  want_fit(src, diff_weight, diff_dst);
  want_f32(diff_weight);
  ProductShape plain{src.dims[1], diff_dst.dims[1], src.dims[0], src.dtype, HT_F32, false, true};
  plain.add = add;
  if (stride != diff_dst.dims[1]) plain.b_stride = stride;
  if (k->out.size() != 2) return finished(std::move(k), {plain});
  want_f32(k->out[1]);
  k->sums = summing_rows(diff_dst, stride);
  if (k->cast_b) return finished(std::move(k), {plain}); // the sums are those of the gradient before it is rounded
  ProductShape in_one = plain;
  in_one.epilogue = ProductShape::sums_of_b;
  return finished(std::move(k), {in_one, plain});
}

} // namespace hetero
