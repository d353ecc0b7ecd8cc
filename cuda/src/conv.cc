// conv.cc: Conv2D and its gradients on cuDNN.
//
// A convolution can be computed in several ways. A way determines:
//
//   - the element types of cuDNN's operands and results
//   - whether cuDNN adds the bias
//   - whether channels are padded with zeros to the granularity of tensor cores
//
// Kernels of this folder do the remaining work, in the workspace. Every way keeps sums in f32, and rounds a result
// once. The program uses the fastest combination of a way and an engine of cuDNN (choices.h).
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "channels.h"
#include "choices.h"
#include "conv_plan.h"
#include "convolution.h"
#include "gpu.h"
#include "ops.h"
#include "quiet.h"
#include "status.h"

namespace hetero {
namespace {

// Largest workspace of cuDNN's part of a kernel; engines that need more are not considered.
#ifdef HETERO_CUDA_SHIM
constexpr int64_t kMostWorkspace = int64_t{1} << 20; // tests touch all of it
#else
constexpr int64_t kMostWorkspace = int64_t{512} << 20;
#endif
// Largest number of timed engines of one graph, in the order of cuDNN's heuristics. Engines that are compiled on
// creation cost a second each.
constexpr int kMostEngines = 8, kMostCompiled = 2;

constexpr int64_t kAlign = 256; // alignment within the workspace
int64_t align_up(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// The convolution to compute.
struct Convolution {
  Pass pass;
  bool nhwc, bias_gradient;
  int groups;
  std::array<int64_t, 2> stride, padding, dilation;
  Dense own[kRoles]; // operands of the request

  Role result() const { return result_of(pass); }
  std::vector<Role> inputs() const {
    if (pass == Pass::diff_src) return {kY, kW};
    if (pass == Pass::diff_weights) return {kX, kY};
    return own[kBias].dtype ? std::vector<Role>{kX, kW, kBias} : std::vector<Role>{kX, kW};
  }
};

// A way to compute a convolution.
struct Way {
  int32_t operands, result; // types of cuDNN's inputs and output
  bool fused = false;       // cuDNN adds the bias
  bool chained = false;     // see ConvGraph
  bool padded = false;      // channels are padded to a multiple of 16 bytes
};

std::string type_name(int32_t dtype) { return dtype == HT_F32 ? "f32" : dtype == HT_BF16 ? "bf16" : "f16"; }

std::string text(const Way &w) {
  return type_name(w.operands) + "-" + type_name(w.result) + (w.fused ? " fused" : "") + (w.chained ? " chained" : "") +
         (w.padded ? " padded" : "");
}

Block block_of(const Dense &d, bool nhwc) {
  const int64_t pixels = d.dims[2] * d.dims[3];
  return nhwc ? Block{d.dtype, d.dims[0], pixels, d.dims[1], true}
              : Block{d.dtype, d.dims[0], d.dims[1], pixels, false};
}

int64_t channels_for(int64_t n, int32_t dtype) {
  const int64_t unit = 16 / dtype_size(dtype);
  return (n + unit - 1) / unit * unit;
}

// Returns the operand in the type and size in which cuDNN reads or writes it.
Dense asked(const Convolution &c, const Way &way, int role) {
  Dense d = c.own[role];
  if (d.dtype == 0 || (role == kBias && !way.fused)) return {};
  if (role != kBias) d.dtype = role == c.result() ? way.result : way.operands;
  if (way.padded) {
    d.dims[1] = channels_for(d.dims[1], c.own[kX].dtype);
    if (role == kW) d.dims[0] = channels_for(d.dims[0], c.own[kX].dtype);
  }
  return d;
}

ConvGraph graph_of(const Convolution &c, const Way &way) {
  const bool tf32 = c.own[kX].dtype != HT_F32; // TF32 represents all values of bf16 and f16
  ConvGraph g{c.pass, c.nhwc, way.chained, tf32, {}, c.stride, c.padding, c.dilation};
  for (int role = 0; role < kRoles; role++) g.operand[role] = asked(c, way, role);
  return g;
}

using Ways = std::vector<Way>;

// HETERO_CUDA_NARROW_GRADIENTS=1 permits cuDNN to round weight gradients of bf16 and f16 to that type, as other
// frameworks do. The gradients are converted to f32 afterwards.
bool narrow_gradients() {
  const char *text = std::getenv("HETERO_CUDA_NARROW_GRADIENTS");
  return text && std::string(text) == "1";
}

// Returns the ways to compute a convolution, the highest priority first. Timing selects among the ways of one priority.
// A lower priority is used only if no way of a higher priority works.
std::vector<Ways> ways_of(const Convolution &c) {
  const int32_t type = c.own[kX].dtype;
  const bool bias = c.pass == Pass::forward && c.own[kBias].dtype, wide = type == HT_F32;
  std::vector<Ways> priorities;
  if (bias) priorities.push_back({{type, type, true}});
  if (c.pass == Pass::diff_weights && !wide && narrow_gradients()) priorities.push_back({{type, type}});
  if (wide || (!bias && c.pass != Pass::diff_weights)) {
    priorities.push_back({{type, type}});
  } else { // cuDNN's result must be f32: the bias is added before rounding, or the gradient is f32
    priorities.push_back({{type, HT_F32}, {type, HT_F32, false, true}});
    priorities.push_back({{HT_F32, HT_F32}});
  }
  const bool odd = channels_for(c.own[kX].dims[1], type) != c.own[kX].dims[1] ||
                   channels_for(c.own[kY].dims[1], type) != c.own[kY].dims[1];
  if (!odd || c.groups > 1 || !c.nhwc) return priorities;
  for (Ways &ways : priorities)
    for (size_t i = 0, n = ways.size(); i < n; i++) {
      Way w = ways[i];
      w.padded = true;
      ways.push_back(w);
    }
  return priorities;
}

// Destroys a plan at quiescence (quiet.h), because the plan owns code. This includes a plan whose kernel could not be
// created.
struct DiscardPlan {
  void operator()(ConvPlan *plan) const { Quiet::discard(std::unique_ptr<ConvPlan>(plan)); }
};
using Plan = std::unique_ptr<ConvPlan, DiscardPlan>;

class ConvKernel : public Kernel {
public:
  ConvKernel(const Convolution &c, const Way &way, Plan plan) : c_(c), way_(way), plan_(std::move(plan)) {
    for (int role = 0; role < kRoles; role++) {
      asked_[role] = asked(c, way, role);
      offset_[role] = -1;
      if (asked_[role].dtype == 0 || asked_[role] == c.own[role]) continue;
      offset_[role] = take(asked_[role].bytes());
    }
    if (c.bias_gradient) partial_ = take(channel_sums_workspace(block(c.own[kY])));
    dnn_ = take(plan_->workspace());
    if (workspace > 0) workspace += kAlign; // the caller aligns the workspace to 64 bytes only
  }

  // Returns an upper limit of the workspace without cuDNN's own part, in bytes.
  static int64_t staging(const Convolution &c, const Way &way) {
    int64_t bytes = 2 * kAlign + align_up(c.bias_gradient ? channel_sums_workspace(block_of(c.own[kY], c.nhwc)) : 0);
    for (int role = 0; role < kRoles; role++) bytes += align_up(asked(c, way, role).bytes());
    return bytes;
  }

  void run(const Args &args) override {
    auto *base =
        reinterpret_cast<uint8_t *>(align_up(static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.workspace))));
    void *own[kRoles] = {}, *given[kRoles] = {};
    const std::vector<Role> &inputs = inputs_;
    for (size_t i = 0; i < inputs.size(); i++) own[inputs[i]] = args.in[i];
    const Role result = c_.result();
    own[result] = args.out[0];
    for (int role = 0; role < kRoles; role++) {
      if (asked_[role].dtype == 0) continue;
      given[role] = offset_[role] < 0 ? own[role] : base + offset_[role];
      if (reinterpret_cast<uintptr_t>(given[role]) % 16)
        throw std::runtime_error("an operand's address is not a multiple of 16, as cuDNN requires");
      if (offset_[role] >= 0 && role != result)
        refit(block(c_.own[role]), own[role], block(asked_[role]), given[role], nullptr, args.queue);
    }
    plan_->run(given, base + dnn_, args.queue);
    const float *bias = way_.fused ? nullptr : static_cast<const float *>(own[kBias]);
    if (offset_[result] >= 0 || bias)
      refit(block(asked_[result]), given[result], block(c_.own[result]), own[result], bias, args.queue);
    if (c_.bias_gradient)
      channel_sums(block(c_.own[kY]), own[kY], static_cast<float *>(args.out[1]), base + partial_, args.queue);
  }

private:
  Block block(const Dense &d) const { return block_of(d, c_.nhwc); }
  int64_t take(int64_t bytes) {
    const int64_t at = workspace;
    workspace += align_up(bytes);
    return at;
  }

  Convolution c_;
  std::vector<Role> inputs_ = c_.inputs();
  Way way_;
  Plan plan_;
  Dense asked_[kRoles];
  int64_t offset_[kRoles]; // offset in the workspace of an operand that is converted for cuDNN; -1: not converted
  int64_t partial_ = 0, dnn_ = 0;
};

// --- choosing -------------------------------------------------------------------------------------

// An engine of cuDNN for a way. kernel is nullptr until `made` creates it.
struct Option {
  Way way;
  std::shared_ptr<BuiltGraph> graph;
  EngineChoice engine;
  std::unique_ptr<ConvKernel> kernel;

  ConvKernel &made(const Convolution &c) {
    if (kernel) return *kernel;
    Plan plan(new ConvPlan(*graph, engine));
    if (plan->workspace() > kMostWorkspace)
      throw Unsupported("workspace: got " + std::to_string(plan->workspace()) + " bytes, want at most " +
                        std::to_string(kMostWorkspace));
    kernel = std::make_unique<ConvKernel>(c, way, std::move(plan));
    return *kernel;
  }
};

// Returns cuDNN's engines for these ways. Appends to reasons why a way has no engine.
std::vector<Option> options_of(const Convolution &c, const Ways &ways, std::string &reasons) {
  std::vector<Option> out;
  for (const Way &way : ways) {
    std::string why;
    try {
      auto graph = std::make_shared<BuiltGraph>(graph_of(c, way));
      int made = 0, compiled = 0;
      for (const EngineChoice &e : graph->choices(why)) {
        if (made == kMostEngines || (e.compiled && compiled == kMostCompiled)) continue;
        made++;
        compiled += e.compiled;
        out.push_back({way, graph, e, nullptr});
      }
    } catch (const DnnError &e) {
      why = e.what();
    }
    reasons += "; " + text(way) + ": " + (why.empty() ? "no engine" : why);
  }
  return out;
}

std::string key_of(const Convolution &c) {
  static const char *const names[] = {"forward", "diff_src", "diff_weights"};
  std::string s = std::string("conv2d ") + names[static_cast<int>(c.pass)] + (c.nhwc ? " nhwc" : " plain");
  for (const Dense &d : c.own)
    if (d.dtype) s += " " + describe(make_spec(d.dtype, {d.dims[0], d.dims[1], d.dims[2], d.dims[3]}));
  for (const auto &list : {c.stride, c.padding, c.dilation})
    s += " " + std::to_string(list[0]) + "x" + std::to_string(list[1]);
  return s + (c.bias_gradient ? " bias" : "");
}

// Runs a kernel on contiguous operands in scratch memory.
Attempt attempt_of(ConvKernel &kernel, const Specced &specs) {
  return [&kernel, &specs](void *scratch, cudaStream_t stream) {
    auto *at = static_cast<uint8_t *>(scratch);
    std::vector<void *> in, out;
    for (const ht_spec &s : specs.in) in.push_back(at), at += align_up(s.bytes);
    for (const ht_spec &s : specs.out) out.push_back(at), at += align_up(s.bytes);
    kernel.run({in.data(), out.data(), at, stream});
  };
}

// Returns the fastest kernel among the ways of one priority. Throws Unsupported if none works.
std::unique_ptr<ConvKernel> best_of(const Convolution &c, const Specced &specs, std::vector<Option> &options) {
  Comparison comparison{
      "cuDNN " + std::to_string(Dnn::get().version), key_of(c) + ", " + text(options[0].way), kMostWorkspace, {}};
  int64_t staging = 0;
  for (Option &o : options) {
    staging = std::max(staging, ConvKernel::staging(c, o.way));
    comparison.candidates.push_back(
        {text(o.way) + " " + o.engine.text(), [&] { return attempt_of(o.made(c), specs); }});
  }
  comparison.bytes += staging;
  for (const Specs *side : {&specs.in, &specs.out})
    for (const ht_spec &s : *side) comparison.bytes += align_up(s.bytes);
  std::rotate(options.begin(), options.begin() + static_cast<std::ptrdiff_t>(fastest(comparison)), options.end());
  std::string why;
  for (Option &o : options) { // the fastest is first; others follow in case it fails
    try {
      o.made(c);
      return std::move(o.kernel);
    } catch (const DnnError &e) {
      why += "; " + o.engine.text() + ": " + e.what();
    } catch (const Unsupported &e) {
      why += "; " + o.engine.text() + ": " + e.what();
    }
  }
  throw Unsupported(why.substr(2));
}

std::unique_ptr<Kernel> choose(const Convolution &c, const Specced &specs) {
  std::string reasons;
  for (const Ways &ways : ways_of(c)) {
    std::vector<Option> options = options_of(c, ways, reasons);
    if (options.empty()) continue;
    try {
      std::unique_ptr<ConvKernel> k = best_of(c, specs, options);
      k->in = specs.in;
      k->out = specs.out;
      return k;
    } catch (const Unsupported &e) {
      reasons += std::string("; ") + e.what();
    }
  }
  throw Unsupported("cuDNN " + std::to_string(Dnn::get().version) + " has no engine for " + key_of(c) + reasons);
}

// --- requests -------------------------------------------------------------------------------------

Dense dense(const ht_spec &s) { return {s.dtype, {s.dims[0], s.dims[1], s.dims[2], s.dims[3]}}; }

std::unique_ptr<Kernel> make(const Request &r, Pass pass) {
  const ht_conv2d_params &p = conv2d_params(r);
  const ht_spec &x = pass == Pass::diff_src ? r.out[0] : r.in[0], &w = pass == Pass::diff_weights ? r.out[0] : r.in[1],
                &y = pass == Pass::forward    ? r.out[0]
                     : pass == Pass::diff_src ? r.in[0]
                                              : r.in[1];
  check_conv2d(p, x, w, y);
  with_float(x, [](auto) {});
  if (y.dtype != x.dtype || w.dtype != (pass == Pass::diff_weights ? HT_F32 : x.dtype))
    throw Unsupported("the types of src " + describe(x) + ", weight " + describe(w) + " and dst " + describe(y) +
                      " do not match: want one type, and an f32 gradient of the weight");

  Specced k;
  k.in = r.in;
  k.out = r.out;
  if (r.in.size() == 3) k.in[2] = with_layout(r.in[2], HT_LAYOUT_PLAIN);
  if (r.out.size() == 2) k.out[1] = with_layout(r.out[1], HT_LAYOUT_PLAIN);
  uint32_t layout = bound_layout(r, {0});
  if (layout == HT_LAYOUT_ANY) layout = kNhwc;
  if (layout != HT_LAYOUT_PLAIN && layout != kNhwc)
    throw Unsupported("images: got layout " + layout_name(layout) + ", want plain or nhwc");
  give_layout(k, r, {0, 1}, {0}, layout);

  Convolution c{pass, layout == kNhwc, r.out.size() == 2, p.groups, {}, {}, {}, {}};
  for (size_t d = 0; d < 2; d++) {
    c.stride[d] = p.stride[d];
    c.padding[d] = p.padding[d];
    c.dilation[d] = p.dilation[d];
  }
  c.own[kX] = dense(x);
  c.own[kW] = dense(w);
  c.own[kY] = dense(y);
  if (r.in.size() == 3) {
    want_f32(r.in[2]);
    c.own[kBias] = {HT_F32, {1, y.dims[1], 1, 1}};
  }
  return choose(c, k);
}

} // namespace

std::unique_ptr<Kernel> make_conv2d(const Request &r) { return make(r, Pass::forward); }
std::unique_ptr<Kernel> make_conv2d_diff_src(const Request &r) { return make(r, Pass::diff_src); }
std::unique_ptr<Kernel> make_conv2d_diff_weights(const Request &r) { return make(r, Pass::diff_weights); }

} // namespace hetero
