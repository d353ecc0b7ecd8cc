// linear.cc: Linear and its gradients. The kernels of pair_linear.h compute products in bf16 that they support, and
// oneDNN's inner products compute the others. Plain kernels compute what oneDNN does not support.
#include "layout.h"
#include "ops.h"
#include "pair_linear.h"
#include "plain.h"
#include "product.h"

namespace hetero {

namespace {

void check_shapes(const ht_spec &src, const ht_spec &weight, const ht_spec &dst) {
  if (src.ndim != 2 || weight.ndim != 2 || dst.ndim != 2 || src.dims[0] != dst.dims[0] ||
      src.dims[1] != weight.dims[1] || dst.dims[1] != weight.dims[0])
    throw Invalid("the shapes of src " + describe(src) + ", weight " + describe(weight) + " and dst " + describe(dst) +
                  " do not match");
}

#if !HT_HAVE_ONEDNN
enum class Pass { forward, diff_src, diff_weights };
#endif

std::unique_ptr<Kernel> make_pair(const Request &r, Pass pass) {
  switch (pass) {
  case Pass::forward: return make_pair_linear(r);
  case Pass::diff_src: return make_pair_linear_diff_src(r);
  default: return make_pair_linear_diff_weights(r);
  }
}

#if HT_HAVE_ONEDNN

// Below about 128 rows, the weight format that oneDNN chooses depends on the number of rows. Optimizer state uses the
// format of large batches, where speed matters most.
constexpr int64_t kCanonicalRows = 1024;

PrimitiveDesc build(const Product &p, const Formats &f) {
  using namespace dnnl;
  const engine &e = cpu_engine();
  primitive_attr attr = user_scratchpad();
  Desc bias = p.bias ? Desc({p.weight.dims[0]}, memory::data_type::f32, memory::format_tag::a) : Desc();
  if (p.pass == Pass::forward)
    return inner_product_forward::primitive_desc(e, prop_kind::forward_training, f.src, f.weight, bias, f.dst, attr,
                                                 true);
  Formats any = any_formats(forward_of(p));
  inner_product_forward::primitive_desc hint(e, prop_kind::forward_training, any.src, any.weight, any.dst, attr, true);
  if (!hint.get(true)) return {};
  if (p.pass == Pass::diff_src)
    return inner_product_backward_data::primitive_desc(e, f.src, f.weight, f.dst, hint, attr, true);
  return inner_product_backward_weights::primitive_desc(e, f.src, f.weight, bias, f.dst, hint, attr, true);
}

std::unique_ptr<Kernel> make(Request r, Pass pass) {
  Product p = product_of(r, pass, 1);
  check_shapes(p.src, p.weight, p.dst);
  if (auto k = make_pair(r, pass)) return k;
  if (pass == Pass::diff_weights) bind_weight_gradient(r, 1, build, kCanonicalRows);
  return make_product(r, product_of(r, pass, 1), build);
}

#else

std::unique_ptr<Kernel> make(const Request &r, Pass pass) {
  if (pass == Pass::forward) check_shapes(r.in[0], r.in[1], r.out[0]);
  if (pass == Pass::diff_src) check_shapes(r.out[0], r.in[1], r.in[0]);
  if (pass == Pass::diff_weights) check_shapes(r.in[0], r.out[0], r.in[1]);
  return make_pair(r, pass);
}

#endif

} // namespace

std::unique_ptr<Kernel> make_linear(const Request &r) { return or_plain(make(r, Pass::forward), r, make_plain_linear); }

std::unique_ptr<Kernel> make_linear_diff_src(const Request &r) {
  return or_plain(make(r, Pass::diff_src), r, make_plain_linear_diff_src);
}

std::unique_ptr<Kernel> make_linear_diff_weights(const Request &r) {
  return or_plain(make(r, Pass::diff_weights), r, make_plain_linear_diff_weights);
}

} // namespace hetero
