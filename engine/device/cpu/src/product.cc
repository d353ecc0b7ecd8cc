// product.cc: chooses formats and implementation, and wires operands to primitive arguments.
#include "product.h"

#if HT_HAVE_ONEDNN

#include <array>

#include "layout.h"
#include "status.h"

namespace hetero {

namespace {

struct Choice {
  PrimitiveDesc pd;
  Formats formats;
  int rank = -1;
};

Formats formats_of(const PrimitiveDesc &pd, Pass pass) {
  using dnnl::query;
  switch (pass) {
  case Pass::forward: return {pd.query_md(query::src_md), pd.query_md(query::weights_md), pd.query_md(query::dst_md)};
  case Pass::diff_src:
    return {pd.query_md(query::diff_src_md), pd.query_md(query::weights_md), pd.query_md(query::diff_dst_md)};
  default: return {pd.query_md(query::src_md), pd.query_md(query::diff_weights_md), pd.query_md(query::diff_dst_md)};
  }
}

Choice attempt(const Builder &build, const Product &p, const Formats &wanted) {
  Choice c;
  c.pd = build(p, wanted);
  if (!c.pd.get(true)) return c;
  c.formats = formats_of(c.pd, p.pass);
  c.rank = implementation_rank(c.pd.impl_info_str());
  return c;
}

bool is_private(const ht_spec &s) { return s.layout >= HT_LAYOUT_FIRST_PRIVATE; }
bool is_bound(const ht_spec &output) { return output.layout != HT_LAYOUT_ANY; }

// The best choice; of equals the one that suits the neighbours best, which is tried first.
Choice choose(const Builder &build, const Product &p) {
  Formats any = any_formats(p);
  bool src_given = p.pass == Pass::diff_src ? is_bound(p.src) : is_private(p.src);
  bool dst_given = p.pass == Pass::forward ? is_bound(p.dst) : is_private(p.dst);
  std::vector<Formats> candidates;
  auto add = [&](const Desc &src, const Desc &dst) {
    if (p.pass != Pass::diff_weights && is_private(p.weight))
      candidates.push_back({src, desc_of(p.weight, p.groups), dst});
    candidates.push_back({src, any.weight, dst});
  };
  auto add_given = [&](bool src, bool dst) { add(src ? desc_of(p.src) : any.src, dst ? desc_of(p.dst) : any.dst); };
  if (src_given || dst_given) add_given(src_given, dst_given);
  if (src_given && dst_given && p.pass != Pass::diff_weights)
    add_given(p.pass == Pass::forward, p.pass == Pass::diff_src); // the output staged
  if (p.pass != Pass::forward) {
    Product forward = forward_of(p);
    Choice f = attempt(build, forward, any_formats(forward));
    if (f.rank >= 0) add(f.formats.src, f.formats.dst);
  }
  add(any.src, any.dst);
  Choice best;
  for (const Formats &c : candidates) {
    Choice tried = attempt(build, p, c);
    if (tried.rank > best.rank) best = tried;
    if (best.rank == 2) break;
  }
  return best;
}

struct Operand {
  int name;
  bool output;
  ht_spec spec; // of the request
  Desc desc;    // as the primitive wants it
};

std::vector<Operand> operands_of(const Request &r, const Product &p, const Formats &f) {
  std::vector<Operand> list;
  switch (p.pass) {
  case Pass::forward:
    list = {{DNNL_ARG_SRC, false, r.in[0], f.src}, {DNNL_ARG_WEIGHTS, false, r.in[1], f.weight}};
    if (p.bias) list.push_back({DNNL_ARG_BIAS, false, r.in[2], desc_of(with_layout(r.in[2], HT_LAYOUT_PLAIN))});
    list.push_back({DNNL_ARG_DST, true, r.out[0], f.dst});
    break;
  case Pass::diff_src:
    list = {{DNNL_ARG_DIFF_DST, false, r.in[0], f.dst},
            {DNNL_ARG_WEIGHTS, false, r.in[1], f.weight},
            {DNNL_ARG_DIFF_SRC, true, r.out[0], f.src}};
    break;
  case Pass::diff_weights:
    list = {{DNNL_ARG_SRC, false, r.in[0], f.src},
            {DNNL_ARG_DIFF_DST, false, r.in[1], f.dst},
            {DNNL_ARG_DIFF_WEIGHTS, true, r.out[0], f.weight}};
    if (p.bias) list.push_back({DNNL_ARG_DIFF_BIAS, true, r.out[1], desc_of(with_layout(r.out[1], HT_LAYOUT_PLAIN))});
    break;
  }
  return list;
}

} // namespace

Product product_of(const Request &r, Pass pass, int64_t groups) {
  Product p;
  switch (pass) {
  case Pass::forward: p = {pass, r.in[0], r.in[1], r.out[0], r.in.size() == 3, groups}; break;
  case Pass::diff_src: p = {pass, r.out[0], r.in[1], r.in[0], false, groups}; break;
  case Pass::diff_weights: p = {pass, r.in[0], r.out[0], r.in[1], r.out.size() == 2, groups}; break;
  }
  for (const ht_spec *s : {&p.src, &p.weight, &p.dst})
    if (s->dtype != HT_F32 && s->dtype != HT_BF16) throw Unsupported(describe(*s) + ": want f32 or bf16");
  // oneDNN's gradients take images of one type; where the engine brings f32 beside bf16, the chain converts.
  if (pass == Pass::diff_src) p.dst.dtype = p.src.dtype = p.weight.dtype;
  if (pass == Pass::diff_weights) p.dst.dtype = p.src.dtype;
  if (pass == Pass::diff_weights && p.weight.dtype != HT_F32)
    throw Unsupported("weight gradient of " + describe(p.weight) + ": want f32");
  return p;
}

Product forward_of(const Product &p) {
  Product f = p;
  f.pass = Pass::forward;
  f.bias = false;
  if (p.pass != Pass::forward) f.dst.dtype = f.weight.dtype = p.src.dtype;
  return f;
}

Formats any_formats(const Product &p) { return {any_desc(p.src), any_desc(p.weight, p.groups), any_desc(p.dst)}; }

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

void bind_weight_gradient(Request &r, int64_t groups, const Builder &build, int64_t canonical_batch) {
  if (is_bound(r.out[0])) return;
  Product p = product_of(r, Pass::diff_weights, groups);
  p.src.dims[0] = p.dst.dims[0] = canonical_batch;
  Choice c = choose(build, p);
  r.out[0].layout = c.rank < 0 ? HT_LAYOUT_PLAIN : layout_of(c.formats.weight, groups);
  set_bytes(r.out[0]);
}

// oneDNN counts the pixels of a batch, and the rows of a matrix, in 32 bits; beyond that it divides by zero.
static void want_countable(const Request &r) {
  for (const Specs *side : {&r.in, &r.out})
    for (const ht_spec &s : *side) {
      const int64_t counted = s.ndim == 4 ? s.dims[0] * s.dims[2] * s.dims[3] : s.ndim > 0 ? s.dims[0] : 1;
      if (counted > INT32_MAX)
        throw OutOfMemory(describe(s) + ": got " + std::to_string(counted) + (s.ndim == 4 ? " pixels" : " rows") +
                      " in a batch, want at most 2147483647: fewer samples at a time");
    }
}

std::unique_ptr<Kernel> make_product(const Request &r, const Product &p, const Builder &build) {
  want_countable(r);
  Choice c = choose(build, p);
  if (c.rank < 0) return nullptr;
  if (p.pass == Pass::diff_weights) {
    Desc wanted = desc_of(p.weight, p.groups);
    if (!(c.formats.weight == wanted)) {
      Choice bound = attempt(build, p, {c.formats.src, wanted, c.formats.dst});
      if (bound.rank >= c.rank) c = bound;
    }
  }
  auto k = std::make_unique<ChainKernel>();
  std::vector<PrimitiveChain::Argument> arguments;
  std::vector<Desc> outer;
  for (const Operand &o : operands_of(r, p, c.formats)) {
    bool is_weight = o.name == DNNL_ARG_WEIGHTS || o.name == DNNL_ARG_DIFF_WEIGHTS;
    int64_t groups = is_weight ? p.groups : 1;
    Specs &side = o.output ? k->out : k->in;
    ht_spec spec = o.spec;
    // Inputs are asked for in the primitive's format, outputs given in it unless they are bound.
    if (!o.output || spec.layout == HT_LAYOUT_ANY) spec.layout = layout_of(o.desc, groups);
    if ((spec.layout & kRegistered) &&
        spec.dtype != static_cast<int32_t>(o.desc.get_data_type() == dnnl::memory::data_type::f32 ? HT_F32 : HT_BF16))
      spec.layout = HT_LAYOUT_PLAIN; // a registered layout holds one type only
    Desc lies = desc_of(spec, groups);
    spec.bytes = static_cast<int64_t>(lies.get_size());
    arguments.push_back({o.name,
                         {o.output ? PrimitiveChain::Operand::output : PrimitiveChain::Operand::input,
                          static_cast<int64_t>(side.size()), o.desc}});
    outer.push_back(lies);
    side.push_back(spec);
  }
  k->chain.add_staged(dnnl::primitive(c.pd.get()), c.pd.scratchpad_desc(), std::move(arguments), outer);
  k->workspace = k->chain.workspace_bytes();
  return k;
}

} // namespace hetero

#endif // HT_HAVE_ONEDNN
