// product.cc: chooses formats and implementation, and connects operands to primitive arguments.
#include "product.h"

#if HT_HAVE_ONEDNN

#include <array>
#include <exception>

#include "layout.h"
#include "status.h"

namespace hetero {

namespace {

struct Choice {
  PrimitiveDesc pd;
  Formats formats;
  int priority = -1;
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
  c.priority = implementation_priority(c.pd.impl_info_str());
  return c;
}

bool is_private(const ht_spec &s) { return s.layout >= HT_LAYOUT_FIRST_PRIVATE; }
bool is_bound(const ht_spec &output) { return output.layout != HT_LAYOUT_ANY; }

// Returns the best choice. Among equally good choices, it returns the first one, which suits the layouts of the
// neighbouring ops best.
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
    add_given(p.pass == Pass::forward, p.pass == Pass::diff_src); // a reorder from the workspace then writes the output
  if (p.pass != Pass::forward) {
    Product forward = forward_of(p);
    Choice f = attempt(build, forward, any_formats(forward));
    if (f.priority >= 0) add(f.formats.src, f.formats.dst);
  }
  add(any.src, any.dst);
  Choice best;
  for (const Formats &c : candidates) {
    Choice tried = attempt(build, p, c);
    if (tried.priority > best.priority) best = tried;
    if (best.priority == 2) break;
  }
  return best;
}

struct Operand {
  int name;
  bool output;
  ht_spec spec; // spec in the request
  Desc desc;    // descriptor that the primitive requires
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
  // oneDNN's gradients need images of one type. If the request mixes f32 and bf16, the chain converts the images.
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
  r.out[0].layout = c.priority < 0 ? HT_LAYOUT_PLAIN : layout_of(c.formats.weight, groups);
  set_bytes(r.out[0]);
}

// oneDNN counts the pixels of a batch, and the rows of a matrix, in 32 bits. Larger counts cause a division by zero in
// oneDNN.
static void want_countable(const Request &r) {
  for (const Specs *side : {&r.in, &r.out})
    for (const ht_spec &s : *side) {
      const int64_t counted = s.ndim == 4 ? s.dims[0] * s.dims[2] * s.dims[3] : s.ndim > 0 ? s.dims[0] : 1;
      if (counted > INT32_MAX)
        throw OutOfMemory(describe(s) + ": got " + std::to_string(counted) + (s.ndim == 4 ? " pixels" : " rows") +
                          " in a batch, want at most 2147483647: fewer samples at a time");
    }
}

// The weight gradient, with the samples divided among the threads. Each thread runs its own primitive on its samples.
// Then the sums of the parts are added in order. oneDNN divides the samples in the same way, but its threads wait for
// each other in a spinning barrier. While one thread waits for a CPU, the other threads waste CPU time that this thread
// needs.
struct SplitGradient : Kernel {
  struct Part {
    PrimitiveChain chain;
    int64_t first; // index of the part's first sample
    // Offsets in the workspace of the sums (not for the first part), and of the scratch memory of the chain.
    int64_t sums, scratch;
    std::exception_ptr failure; // of this run; an exception must not leave a part of a parallel region
  };
  std::vector<std::unique_ptr<Part>> parts;
  int64_t sample_bytes[2]; // bytes of one sample of src and of diff_dst
  std::vector<int64_t> out_bytes;

  void run(const Args &args) override {
    const auto count = static_cast<int64_t>(parts.size());
    auto *workspace = static_cast<char *>(args.workspace);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
      Part &p = *parts[static_cast<size_t>(i)];
      void *in[2] = {static_cast<char *>(args.in[0]) + p.first * sample_bytes[0],
                     static_cast<char *>(args.in[1]) + p.first * sample_bytes[1]};
      void *out[2] = {nullptr, nullptr};
      for (size_t o = 0; o < out_bytes.size(); o++) out[o] = i == 0 ? args.out[o] : sum(workspace, p, o);
      p.failure = nullptr;
      try {
        p.chain.run({in, out, workspace + p.scratch, nullptr});
      } catch (...) {
        p.failure = std::current_exception();
      }
    }
    for (const auto &p : parts)
      if (p->failure) std::rethrow_exception(p->failure);
    for (size_t o = 0; o < out_bytes.size(); o++) add(static_cast<float *>(args.out[o]), workspace, o);
  }

  char *sum(char *workspace, const Part &p, size_t o) const {
    return workspace + p.sums + (o ? round_up(out_bytes[0]) : 0);
  }
  static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  void add(float *to, char *workspace, size_t o) const {
    constexpr int64_t block = 4096; // elements: enough work for a thread
    const int64_t n = out_bytes[o] / 4, blocks = (n + block - 1) / block;
#pragma omp parallel for schedule(static) if (blocks > 1)
    for (int64_t b = 0; b < blocks; b++)
      for (size_t i = 1; i < parts.size(); i++) {
        const auto *from = reinterpret_cast<const float *>(sum(workspace, *parts[i], o));
        for (int64_t e = b * block; e < std::min(n, (b + 1) * block); e++) to[e] += from[e];
      }
  }
};

// Returns the product for a part of the batch with n samples.
Product samples_of(Product p, int64_t n) {
  p.src.dims[0] = p.dst.dims[0] = n;
  return p;
}

// Returns the kernel for a weight gradient in parts of the batch. Returns nullptr if dividing is not worthwhile, or if
// oneDNN's formats do not allow it.
std::unique_ptr<Kernel> make_split(const Request &r, const Product &p, const Choice &c, const Builder &build) {
  if (p.pass != Pass::diff_weights || r.threads < 2 || c.priority < 2) return nullptr;
  const int64_t samples = p.src.dims[0];
  const int64_t pixels = p.dst.ndim == 4 ? p.dst.dims[2] * p.dst.dims[3] : 1;
  int64_t weights = 1;
  for (int32_t i = 0; i < p.weight.ndim; i++) weights *= p.weight.dims[i];
  // Smallest number of products per sum in a part. With fewer products, writing and adding the sums of parts takes a
  // noticeable fraction of the time.
  constexpr int64_t least = 512;
  int64_t count = std::min<int64_t>(r.threads, samples);
  // Tiny work takes less than 0.1 ms on one thread, which is about the time to wake another thread.
  const bool tiny = samples * pixels * weights < 4'000'000;
  if (tiny) count = 1;
  if (count < r.threads && !tiny) return nullptr;
  if (!tiny && samples / count * pixels < least) return nullptr;

  const ht_spec *images[2] = {&r.in[0], &r.in[1]};
  const Desc lies[2] = {c.formats.src, c.formats.dst};
  const Desc weight = desc_of(p.weight, p.groups);
  if (!(c.formats.weight == weight)) return nullptr;
  auto k = std::make_unique<SplitGradient>();
  for (int i = 0; i < 2; i++) {
    ht_spec spec = *images[i];
    spec.layout = layout_of(lies[i]);
    if (spec.layout >= HT_LAYOUT_FIRST_PRIVATE && spec.ndim != 4) return nullptr;
    if (!(desc_of(spec) == lies[i])) return nullptr; // the image has another type and must be converted first
    ht_spec one = spec;
    one.dims[0] = 1;
    k->sample_bytes[i] = static_cast<int64_t>(desc_of(one).get_size());
    spec.bytes = static_cast<int64_t>(lies[i].get_size());
    if (k->sample_bytes[i] * samples != spec.bytes) return nullptr; // the samples are not contiguous
    k->in.push_back(spec);
  }
  for (const ht_spec &spec : r.out) {
    k->out.push_back(with_layout(spec, k->out.empty() ? p.weight.layout : HT_LAYOUT_PLAIN));
    k->out_bytes.push_back(k->out.back().bytes);
  }
  Alone alone; // creates primitives for one thread
  for (int64_t i = 0; i < count; i++) {
    const int64_t first = samples * i / count;
    Product q = samples_of(p, samples * (i + 1) / count - first);
    q.src.layout = k->in[0].layout;
    q.dst.layout = k->in[1].layout;
    Choice part = attempt(build, q, {desc_of(q.src), weight, desc_of(q.dst)});
    if (part.priority < c.priority) return nullptr;
    auto it = std::make_unique<SplitGradient::Part>();
    it->first = first;
    using O = PrimitiveChain::Operand;
    std::vector<PrimitiveChain::Argument> arguments = {{DNNL_ARG_SRC, {O::input, 0, part.formats.src}},
                                                       {DNNL_ARG_DIFF_DST, {O::input, 1, part.formats.dst}},
                                                       {DNNL_ARG_DIFF_WEIGHTS, {O::output, 0, part.formats.weight}}};
    if (p.bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, {O::output, 1, desc_of(k->out[1])}});
    it->chain.add(dnnl::primitive(part.pd.get()), part.pd.scratchpad_desc(), std::move(arguments));
    it->sums = k->workspace;
    if (i > 0)
      for (int64_t bytes : k->out_bytes) k->workspace += SplitGradient::round_up(bytes);
    it->scratch = k->workspace;
    k->workspace += SplitGradient::round_up(it->chain.workspace_bytes());
    k->parts.push_back(std::move(it));
  }
  return k;
}

std::unique_ptr<Kernel> make_product(const Request &r, const Product &p, const Builder &build) {
  want_countable(r);
  Choice c = choose(build, p);
  if (c.priority < 0) return nullptr;
  if (p.pass == Pass::diff_weights) {
    Desc wanted = desc_of(p.weight, p.groups);
    if (!(c.formats.weight == wanted)) {
      Choice bound = attempt(build, p, {c.formats.src, wanted, c.formats.dst});
      if (bound.priority >= c.priority) c = bound;
    }
  }
  if (auto k = make_split(r, p, c, build)) return k;
  auto k = std::make_unique<ChainKernel>();
  k->together = p.pass == Pass::diff_weights && r.threads > 1; // oneDNN adds the sums after a spinning barrier
  std::vector<PrimitiveChain::Argument> arguments;
  std::vector<Desc> outer;
  for (const Operand &o : operands_of(r, p, c.formats)) {
    bool is_weight = o.name == DNNL_ARG_WEIGHTS || o.name == DNNL_ARG_DIFF_WEIGHTS;
    int64_t groups = is_weight ? p.groups : 1;
    Specs &side = o.output ? k->out : k->in;
    ht_spec spec = o.spec;
    // Inputs must have the primitive's format. Outputs also have it, unless they are bound to another layout.
    if (!o.output || spec.layout == HT_LAYOUT_ANY) spec.layout = layout_of(o.desc, groups);
    if ((spec.layout & kRegistered) &&
        spec.dtype != static_cast<int32_t>(o.desc.get_data_type() == dnnl::memory::data_type::f32 ? HT_F32 : HT_BF16))
      spec.layout = HT_LAYOUT_PLAIN; // a registered layout belongs to one type only
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
