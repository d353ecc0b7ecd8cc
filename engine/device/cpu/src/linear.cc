// linear.cc: Linear and its gradients. They use the kernels of panel_linear.h or oneDNN's inner products, whichever are
// faster (choices.h). Plain kernels compute requests that neither supports.
#include "linear.h"

#include "choices.h"
#include "layout.h"
#include "ops.h"
#include "panel_linear.h"
#include "plain.h"
#include "product.h"

namespace hetero {

namespace {

#if !HT_HAVE_ONEDNN
enum class Pass { forward, diff_src, diff_weights };
#endif

void check_shapes(const ht_spec &src, const ht_spec &weight, const ht_spec &dst) {
  if (src.ndim != 2 || weight.ndim != 2 || dst.ndim != 2 || src.dims[0] != dst.dims[0] ||
      src.dims[1] != weight.dims[1] || dst.dims[1] != weight.dims[0])
    throw Invalid("the shapes of src " + describe(src) + ", weight " + describe(weight) + " and dst " + describe(dst) +
                  " do not match");
}

void check_shapes(const Request &r, Pass pass) {
  switch (pass) {
  case Pass::forward: return check_shapes(r.in[0], r.in[1], r.out[0]);
  case Pass::diff_src: return check_shapes(r.out[0], r.in[1], r.in[0]);
  case Pass::diff_weights: return check_shapes(r.in[0], r.out[0], r.in[1]);
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
  if (pass == Pass::diff_weights) bind_weight_gradient(r, 1, build, kCanonicalRows);
  return make_product(r, product_of(r, pass, 1), build);
}

#else

std::unique_ptr<Kernel> make(const Request &, Pass) { return nullptr; }

#endif

// The kernels of panel_linear.h pack the weight for each panel, which takes most of the time if there are few rows. The
// limit is a power of two, like the limits of the classes of numbers of rows (choices.h). All requests of a class
// therefore have the same best guess.
constexpr int64_t kFewRows = 64;

std::unique_ptr<Kernel> choose(const Request &r, Pass pass, Factory tiles, Factory library) {
  check_shapes(r, pass);
  const bool few = pass != Pass::diff_weights && r.in[0].dims[0] <= kFewRows;
  return fastest(r, {kTiles, tiles}, {kLibrary, library}, library_has_amx(r) || few);
}

} // namespace

std::unique_ptr<Kernel> make_library_linear(const Request &r) {
  return or_plain(make(r, Pass::forward), r, make_plain_linear);
}

std::unique_ptr<Kernel> make_library_linear_diff_src(const Request &r) {
  return or_plain(make(r, Pass::diff_src), r, make_plain_linear_diff_src);
}

std::unique_ptr<Kernel> make_library_linear_diff_weights(const Request &r) {
  return or_plain(make(r, Pass::diff_weights), r, make_plain_linear_diff_weights);
}

std::unique_ptr<Kernel> make_linear(const Request &r) {
  return choose(r, Pass::forward, make_panel_linear, make_library_linear);
}

std::unique_ptr<Kernel> make_linear_diff_src(const Request &r) {
  return choose(r, Pass::diff_src, make_panel_linear_diff_src, make_library_linear_diff_src);
}

std::unique_ptr<Kernel> make_linear_diff_weights(const Request &r) {
  return choose(r, Pass::diff_weights, make_panel_linear_diff_weights, make_library_linear_diff_weights);
}

} // namespace hetero
