// plain_linear_arm64.cc: linear layers over plain tensors, as matrix products of gemm_arm64.h.
//
// Shapes: src (N, I), weight (O, I), dst (N, O). T is the element type of src and weight, D is that of dst, and P is
// that of panels.
//
//     forward        dst (N, O)           = src (N, I) · weightᵀ (I, O)
//     diff_src       diff_src (N, I)      = diff_dst (N, O) · weight (O, I)
//     diff_weights   diff_weight (O, I)   = diff_dstᵀ (O, N) · src (N, I)
#include <algorithm>

#include "isa_arm64.h"
#include "panels_arm64.h"
#include "plain.h"
#include "plain_types.h"

namespace hetero {

namespace {

// An operand of a product. Element (i, k) is at data + i*row + k*product, and `row` or `product` is 1.
template <class S> struct Matrix {
  const S *data;
  int64_t row, product;

  // Packs rows [from, from + rows), which are rows of a or columns of b.
  template <int W, class P> void pack(int64_t from, int64_t rows, int64_t k, int64_t depth, P *panel) const {
    for (int64_t r = from; r < from + rows; r += W, panel += packed<P>(depth) * W) {
      const int64_t valid = std::min<int64_t>(W, from + rows - r);
      const S *first = data + r * row + k * product;
      if (product == 1) {
        pack_columns<W>(panel, 0, depth, valid, first, row);
        clear_products<W>(panel, depth, packed<P>(depth));
        continue;
      }
      pack_rows<W, P, S>(panel, depth, [&](int64_t j, S *buffer) -> const S * {
        if (valid == W) return first + j * product;
        std::fill(std::copy_n(first + j * product, valid, buffer), buffer + W, S{});
        return buffer;
      });
    }
  }
};

template <class P, class A, class B, class C> struct Operands final : GemmOperands {
  Matrix<A> a;
  Matrix<B> b;
  C *c;
  int64_t c_row;
  const float *bias; // one element per column, or nullptr

  Operands(Matrix<A> left, Matrix<B> right, void *to, int64_t to_row, const float *plus)
      : a(left), b(right), c(static_cast<C *>(to)), c_row(to_row), bias(plus) {}

  void pack_a(int64_t, int64_t row, int64_t rows, int64_t k, int64_t depth, void *to) const override {
    a.template pack<kTileRows>(row, rows, k, depth, static_cast<P *>(to));
  }
  void pack_b(int64_t, int64_t column, int64_t columns, int64_t k, int64_t depth, void *to, char *) const override {
    b.template pack<kTileColumns>(column, columns, k, depth, static_cast<P *>(to));
  }
  void store(int64_t, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *sums,
             int64_t sums_row) const override {
    for (int64_t i = 0; i < rows; i++) {
      C *to = c + (row + i) * c_row + column;
      const float *s = sums + i * sums_row;
      if (bias)
        for (int64_t j = 0; j < columns; j++) put(to + j, s[j] + bias[column + j]);
      else
        for (int64_t j = 0; j < columns; j++) put(to + j, s[j]);
    }
  }
};

template <class P> constexpr bool is_bf16 = !std::is_same_v<P, float>;

template <class T, class D, class P> struct Forward final : Kernel {
  int64_t n, i, o;
  Gemm product;
  explicit Forward(const Request &r)
      : n(r.in[0].dims[0]), i(r.in[0].dims[1]), o(r.in[1].dims[0]), product(1, n, o, i, is_bf16<P>, r.threads, false) {
    workspace = product.workspace();
  }
  void run(const Args &args) override {
    product.run(Operands<P, T, T, D>({static_cast<const T *>(args.in[0]), i, 1},
                                     {static_cast<const T *>(args.in[1]), i, 1}, args.out[0], o,
                                     in.size() == 3 ? static_cast<const float *>(args.in[2]) : nullptr),
                args.workspace);
  }
};

template <class T, class D, class P> struct DiffSrc final : Kernel {
  int64_t n, i, o;
  Gemm product;
  explicit DiffSrc(const Request &r)
      : n(r.in[0].dims[0]), i(r.in[1].dims[1]), o(r.in[0].dims[1]), product(1, n, i, o, is_bf16<P>, r.threads, false) {
    workspace = product.workspace();
  }
  void run(const Args &args) override {
    product.run(Operands<P, D, T, T>({static_cast<const D *>(args.in[0]), o, 1},
                                     {static_cast<const T *>(args.in[1]), 1, i}, args.out[0], i, nullptr),
                args.workspace);
  }
};

template <class T, class D, class P> struct DiffWeights final : Kernel {
  int64_t n, i, o;
  Gemm product;
  explicit DiffWeights(const Request &r)
      : n(r.in[0].dims[0]), i(r.in[0].dims[1]), o(r.in[1].dims[1]), product(1, o, i, n, is_bf16<P>, r.threads, true) {
    workspace = product.workspace();
  }
  void run(const Args &args) override {
    const auto *diff_dst = static_cast<const D *>(args.in[1]);
    product.run(
        Operands<P, D, T, float>({diff_dst, 1, o}, {static_cast<const T *>(args.in[0]), 1, i}, args.out[0], i, nullptr),
        args.workspace);
    if (out.size() == 2) sum_rows(diff_dst, static_cast<float *>(args.out[1]));
  }
  // Sums the rows of diff_dst, in f64.
  void sum_rows(const D *diff_dst, float *diff_bias) const {
    constexpr int64_t columns = 64;
#pragma omp parallel for schedule(static)
    for (int64_t from = 0; from < o; from += columns) {
      const int64_t count = std::min(columns, o - from);
      double sum[columns] = {};
      for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < count; j++) sum[j] += double(to_f32(diff_dst[r * o + from + j]));
      for (int64_t j = 0; j < count; j++) diff_bias[from + j] = float(sum[j]);
    }
  }
};

// Creates K<T, D, P> for the types t of src and weight, and d of dst.
template <template <class, class, class> class K>
std::unique_ptr<Kernel> make(const Request &r, const ht_spec &t, const ht_spec &also_t, const ht_spec &d) {
  for (const ht_spec *s : {&t, &d})
    if (s->dtype != HT_F32 && s->dtype != HT_BF16) throw Unsupported(describe(*s) + ": want f32 or bf16");
  if (also_t.dtype != t.dtype) throw Unsupported(describe(also_t) + ": want the type of " + describe(t));
  std::unique_ptr<Kernel> k;
  const bool wide = d.dtype == HT_F32;
  if (t.dtype == HT_F32 && wide)
    k = std::make_unique<K<float, float, float>>(r);
  else if (t.dtype == HT_F32)
    k = std::make_unique<K<float, Bf16, float>>(r);
  else if (has_bfmmla() && wide)
    k = std::make_unique<K<Bf16, float, Bf16>>(r);
  else if (has_bfmmla())
    k = std::make_unique<K<Bf16, Bf16, Bf16>>(r);
  else if (wide)
    k = std::make_unique<K<Bf16, float, float>>(r);
  else
    k = std::make_unique<K<Bf16, Bf16, float>>(r);
  take_plain_operands(*k, r);
  return k;
}

} // namespace

std::unique_ptr<Kernel> make_plain_linear(const Request &r) { return make<Forward>(r, r.in[0], r.in[1], r.out[0]); }

std::unique_ptr<Kernel> make_plain_linear_diff_src(const Request &r) {
  return make<DiffSrc>(r, r.in[1], r.out[0], r.in[0]);
}

std::unique_ptr<Kernel> make_plain_linear_diff_weights(const Request &r) {
  if (r.out[0].dtype != HT_F32) throw Unsupported(describe(r.out[0]) + ": want f32");
  return make<DiffWeights>(r, r.in[0], r.in[0], r.in[1]);
}

} // namespace hetero
