// conv_plan.cc: descriptors, heuristics, plans.
#include "conv_plan.h"

#include <algorithm>

#include "gpu.h"
#include "specs.h"

namespace hetero {
namespace {

// Identifiers of the operands in a graph.
constexpr int64_t kVirtual = 100; // identifier of the convolution's result before the bias
int64_t uid(int role) { return role + 1; }

cudnnDataType_t type_of(int32_t dtype) {
  switch (dtype) {
  case HT_F32: return CUDNN_DATA_FLOAT;
  case HT_BF16: return CUDNN_DATA_BFLOAT16;
  case HT_F16: return CUDNN_DATA_HALF;
  default: throw Unsupported("element type " + std::to_string(dtype) + ", want f32, bf16 or f16");
  }
}

Descriptor tensor(const Dense &t, bool nhwc, int64_t id, bool is_virtual) {
  const auto &d = t.dims;
  const std::vector<int64_t> dims(d.begin(), d.end());
  const std::vector<int64_t> nchw{d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
  const std::vector<int64_t> nhwc_strides{d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
  Descriptor out(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "cuDNN tensor");
  out.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(t.dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, nhwc ? nhwc_strides : nchw)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
  out.finalize();
  return out;
}

Descriptor convolution(const ConvGraph &g) {
  const auto list = [](const std::array<int64_t, 2> &v) { return std::vector<int64_t>(v.begin(), v.end()); };
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Descriptor out(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "cuDNN convolution");
  out.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .raw(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, list(g.dilation))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, list(g.stride))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, list(g.padding))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, list(g.padding));
  out.finalize();
  return out;
}

// Names of the attributes of each pass.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};

OperationNames names_of(Pass pass) {
  switch (pass) {
  case Pass::forward:
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  case Pass::diff_src:
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  default:
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

Descriptor operation(Pass pass, const Descriptor &conv, const Descriptor &x, const Descriptor &w, const Descriptor &y) {
  const OperationNames n = names_of(pass);
  Descriptor out(n.type, "cuDNN convolution operation");
  out.set(n.conv, conv).set(n.x, x).set(n.w, w).set(n.y, y).set(n.alpha, 1.0f).set(n.beta, 0.0f).finalize();
  return out;
}

// Returns the description of an element-by-element operation on a convolution's result.
Descriptor pointwise(cudnnPointwiseMode_t mode) {
  Descriptor out(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "cuDNN pointwise");
  out.raw(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalize();
  return out;
}

// Returns the operation y = x + bias, or y = x if bias is nullptr.
Descriptor pointwise_operation(const Descriptor &how, const Descriptor &x, const Descriptor *bias,
                               const Descriptor &y) {
  Descriptor out(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "cuDNN pointwise operation");
  out.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (bias) out.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *bias);
  out.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize();
  return out;
}

// Returns why an engine with these notes is not allowed; nullptr if it is allowed.
const char *objection(const std::vector<cudnnBackendNumericalNote_t> &notes, bool tf32) {
  for (const cudnnBackendNumericalNote_t note : notes) {
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return "nondeterministic";
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: return "converts inputs down";
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return "sums in a narrower type";
    case CUDNN_NUMERICAL_NOTE_FFT: return "FFT";
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return "Winograd";
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      if (!tf32) return "TF32";
      break;
    default: break;
    }
  }
  return nullptr;
}

std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor &engine) {
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const int64_t count = engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes.data());
  notes.resize(static_cast<size_t>(std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
  return notes;
}

std::vector<Descriptor> blank(int64_t count, cudnnBackendDescriptorType_t type, const char *what) {
  std::vector<Descriptor> list;
  for (int64_t i = 0; i < count; i++) list.emplace_back(type, what);
  return list;
}

bool is_compiled(const Descriptor &engine) {
  std::vector<cudnnBackendBehaviorNote_t> notes(CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  const int64_t count = engine.read(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                    CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, notes.data());
  notes.resize(static_cast<size_t>(std::min<int64_t>(count, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT)));
  return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes.end();
}

EngineChoice choice_of(const Descriptor &config, const Descriptor &engine) {
  EngineChoice out;
  out.engine = engine.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  out.compiled = is_compiled(engine);
  std::vector<Descriptor> knobs = blank(CUDNN_KNOB_TYPE_COUNTS, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "cuDNN knob");
  config.read(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  for (const Descriptor &k : knobs) {
    cudnnBackendKnobType_t type{};
    k.read(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    out.knobs.emplace_back(static_cast<int32_t>(type), k.number(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  std::sort(out.knobs.begin(), out.knobs.end());
  return out;
}

} // namespace

int64_t Dense::bytes() const { return dtype == 0 ? 0 : elements() * dtype_size(dtype); }

std::string EngineChoice::text() const {
  std::string s = "engine " + std::to_string(engine) + " knobs";
  for (const auto &[type, value] : knobs) s += " " + std::to_string(type) + "=" + std::to_string(value);
  return s;
}

BuiltGraph::BuiltGraph(const ConvGraph &g)
    : tf32_(g.tf32 || g.operand[kX].dtype != HT_F32), graph_(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "cuDNN graph") {
  const bool bias = g.operand[kBias].dtype != 0;
  const Role result = result_of(g.pass);
  parts_.reserve(16); // pointers to elements must stay valid
  const auto part = [&](Descriptor d) { return &parts_.emplace_back(std::move(d)); };
  const Descriptor *t[] = {part(tensor(g.operand[kX], g.nhwc, uid(kX), false)),
                           part(tensor(g.operand[kW], g.nhwc, uid(kW), false)),
                           part(tensor(g.operand[kY], g.nhwc, uid(kY), false))};
  const Descriptor *to = t[result];
  if (bias || g.chained) {
    Dense sum = g.operand[result]; // the convolution's result is f32 and virtual: cuDNN does not store it
    sum.dtype = HT_F32;
    t[result] = part(tensor(sum, g.nhwc, kVirtual, true));
  }
  std::vector<const Descriptor *> operations{part(operation(g.pass, *part(convolution(g)), *t[kX], *t[kW], *t[kY]))};
  if (bias || g.chained) {
    const Descriptor *b = bias ? part(tensor(g.operand[kBias], g.nhwc, uid(kBias), false)) : nullptr;
    const Descriptor *how = part(pointwise(bias ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_IDENTITY));
    operations.push_back(part(pointwise_operation(*how, *t[result], b, *to)));
  }
  DnnHandle &h = building_handle();
  std::lock_guard<std::mutex> guard(h.lock);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, h.handle).set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).finalize();
}

void BuiltGraph::offer(cudnnBackendHeurMode_t mode, std::vector<EngineChoice> &list, std::string &turned_down) const {
  constexpr int64_t kMost = 32;
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "cuDNN heuristics");
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
      .raw(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)
      .finalize();
  std::vector<Descriptor> configs = blank(kMost, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "cuDNN engine configuration");
  heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, configs);
  for (const Descriptor &config : configs) {
    std::vector<Descriptor> engine = blank(1, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "cuDNN engine");
    config.read(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (engine.empty()) continue;
    const EngineChoice choice = choice_of(config, engine[0]);
    const std::string text = choice.text();
    if (const char *why = objection(notes_of(engine[0]), tf32_)) {
      turned_down += (turned_down.empty() ? "" : ", ") + text + " " + why;
      continue;
    }
    const auto same = [&](const EngineChoice &c) { return c.text() == text; };
    if (std::none_of(list.begin(), list.end(), same)) list.push_back(choice);
  }
}

std::vector<EngineChoice> BuiltGraph::choices(std::string &turned_down) const {
  std::vector<EngineChoice> list;
  DnnHandle &h = building_handle();
  std::lock_guard<std::mutex> guard(h.lock);
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      offer(mode, list, turned_down);
    } catch (const DnnError &e) { // these heuristics do not support the graph; other heuristics may
      turned_down += (turned_down.empty() ? "" : ", ") + std::string(e.what());
    }
  }
  return list;
}

ConvPlan::ConvPlan(const BuiltGraph &graph, const EngineChoice &choice)
    : engine_(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "cuDNN engine"),
      config_(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "cuDNN engine configuration"),
      plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "cuDNN plan") {
  std::vector<const Descriptor *> list;
  for (const auto &[type, value] : choice.knobs) {
    const cudnnBackendKnobType_t t = static_cast<cudnnBackendKnobType_t>(type);
    knobs_.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "cuDNN knob");
    knobs_.back()
        .raw(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &t)
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value)
        .finalize();
  }
  for (const Descriptor &k : knobs_) list.push_back(&k);
  DnnHandle &h = building_handle();
  std::lock_guard<std::mutex> guard(h.lock);
  engine_.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.graph())
      .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine)
      .finalize();
  config_.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine_);
  if (!list.empty()) config_.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, list);
  config_.finalize();
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, h.handle)
      .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_)
      .finalize();
  workspace_ = plan_.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  running_handle(); // creates the handle now, not during a step
}

void ConvPlan::run(void *const (&operand)[kRoles], void *workspace, void *queue) {
  std::array<void *, kRoles + 1> addresses{};
  for (int i = 0; i < kRoles; i++) addresses[size_t(i)] = operand[i];
  addresses[kRoles] = workspace;
  DnnHandle &h = running_handle();
  std::lock_guard<std::mutex> guard(h.lock);
  if (!pack_ || packed_ != addresses) {
    std::vector<void *> pointers;
    std::vector<int64_t> ids;
    for (int i = 0; i < kRoles; i++) {
      if (!operand[i]) continue;
      pointers.push_back(operand[i]);
      ids.push_back(uid(i));
    }
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "cuDNN variant pack");
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
        .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finalize();
    pack_ = std::move(pack);
    packed_ = addresses;
  }
  check_dnn(Dnn::get().set_stream(h.handle, static_cast<cudaStream_t>(queue)), "cuDNN stream");
  check_dnn(Dnn::get().execute(h.handle, plan_.get(), pack_->get()), "cuDNN convolution");
}

} // namespace hetero
