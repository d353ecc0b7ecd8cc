// conv.cc: Conv2D and its gradients. These kernels compute them:
//
//   - On a CPU with AMX: the kernels of tile_conv.h, or those of other CPUs if these are faster (choices.h).
//   - On other CPUs: the kernels of block_conv.h for small images, and oneDNN's primitives for most other convolutions.
//   - Plain kernels, for convolutions that oneDNN does not support.
#include "block_conv.h"
#include "choices.h"
#include "convolution.h"
#include "layout.h"
#include "ops.h"
#include "plain.h"
#include "product.h"
#include "tile_conv.h"

namespace hetero {

namespace {

#if HT_HAVE_ONEDNN

constexpr int64_t kCanonicalBatch = 32;

PrimitiveDesc build(const ht_conv2d_params &c, const Product &p, const Formats &f) {
  using namespace dnnl;
  memory::dims stride{c.stride[0], c.stride[1]}, padding{c.padding[0], c.padding[1]},
      dilation{c.dilation[0] - 1, c.dilation[1] - 1};
  const engine &e = cpu_engine();
  auto direct = algorithm::convolution_direct;
  primitive_attr attr = user_scratchpad();
  Desc bias = p.bias ? Desc({p.weight.dims[0]}, memory::data_type::f32, memory::format_tag::a) : Desc();
  if (p.pass == Pass::forward)
    return convolution_forward::primitive_desc(e, prop_kind::forward_training, direct, f.src, f.weight, bias, f.dst,
                                               stride, dilation, padding, padding, attr, true);
  Formats any = any_formats(forward_of(p));
  convolution_forward::primitive_desc hint(e, prop_kind::forward_training, direct, any.src, any.weight, any.dst, stride,
                                           dilation, padding, padding, attr, true);
  if (!hint.get(true)) return {};
  if (p.pass == Pass::diff_src)
    return convolution_backward_data::primitive_desc(e, direct, f.src, f.weight, f.dst, stride, dilation, padding,
                                                     padding, hint, attr, true);
  return convolution_backward_weights::primitive_desc(e, direct, f.src, f.weight, bias, f.dst, stride, dilation,
                                                      padding, padding, hint, attr, true);
}

std::unique_ptr<Kernel> make_library(Request r, Pass pass) {
  const ht_conv2d_params &c = conv2d_params(r);
  Product p = product_of(r, pass, c.groups);
  check_conv2d(c, p.src, p.weight, p.dst);
  Builder builder = [c](const Product &q, const Formats &f) { return build(c, q, f); };
  if (pass == Pass::diff_weights) bind_weight_gradient(r, c.groups, builder, kCanonicalBatch);
  if (auto k = make_block_conv(r)) return k;
  return make_product(r, product_of(r, pass, c.groups), builder);
}

#else

enum class Pass { forward, diff_src, diff_weights };

std::unique_ptr<Kernel> make_library(const Request &r, Pass pass) {
  const ht_conv2d_params &c = conv2d_params(r);
  if (pass == Pass::forward) check_conv2d(c, r.in[0], r.in[1], r.out[0]);
  if (pass == Pass::diff_src) check_conv2d(c, r.out[0], r.in[1], r.in[0]);
  if (pass == Pass::diff_weights) check_conv2d(c, r.in[0], r.out[0], r.in[1]);
  return nullptr;
}

#endif

std::unique_ptr<Kernel> library_conv2d(const Request &r) {
  return or_plain(make_library(r, Pass::forward), r, make_plain_conv2d);
}

std::unique_ptr<Kernel> library_conv2d_diff_src(const Request &r) {
  return or_plain(make_library(r, Pass::diff_src), r, make_plain_conv2d_diff_src);
}

std::unique_ptr<Kernel> library_conv2d_diff_weights(const Request &r) {
  return or_plain(make_library(r, Pass::diff_weights), r, make_plain_conv2d_diff_weights);
}

} // namespace

std::unique_ptr<Kernel> make_conv2d(const Request &r) {
  return fastest(r, {kTiles, make_tile_conv}, {kLibrary, library_conv2d});
}

std::unique_ptr<Kernel> make_conv2d_diff_src(const Request &r) {
  return fastest(r, {kTiles, make_tile_conv}, {kLibrary, library_conv2d_diff_src});
}

std::unique_ptr<Kernel> make_conv2d_diff_weights(const Request &r) {
  return fastest(r, {kTiles, make_tile_conv}, {kLibrary, library_conv2d_diff_weights});
}

} // namespace hetero
