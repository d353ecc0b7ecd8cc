// cudnn.cc: descriptors of the fake cuDNN: the attributes, their types and counts, and which are required.
#include <cudnn.h>

#include <cstdlib>

#include "cudnn_fake.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace fake {
namespace {

struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t least, most; // number of elements; an attribute with least 0 is optional
};

constexpr cudnnBackendDescriptorType_t kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                                       kConv = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                                       kPointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                                       kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                       kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                       kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                       kPointwiseOperation = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                                       kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                                       kHeuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                                       kEngine = CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                       kConfig = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                       kKnob = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                                       kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                       kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr cudnnBackendAttributeType_t kObject = CUDNN_TYPE_BACKEND_DESCRIPTOR;

constexpr Rule kRules[] = {
    {kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, 8},
    {kTensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 1, 8},
    {kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    {kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    {kTensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1},
    {kConv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {kConv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {kConv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1},
    {kConv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, 3},
    {kConv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, 3},
    {kConv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, 3},
    {kConv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, 3},
    {kPointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1},
    {kPointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kObject, 1, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kObject, 1, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kObject, 1, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kObject, 1, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kObject, 1, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kObject, 1, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kObject, 1, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kObject, 1, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kObject, 1, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kObject, 1, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kObject, 1, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kObject, 1, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, 1},
    {kPointwiseOperation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kObject, 1, 1},
    {kPointwiseOperation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kObject, 1, 1},
    {kPointwiseOperation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kObject, 0, 1},
    {kPointwiseOperation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kObject, 1, 1},
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kObject, 1, 64},
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kObject, 1, 1},
    {kHeuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {kEngine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, kObject, 1, 1},
    {kEngine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, 1},
    {kConfig, CUDNN_ATTR_ENGINECFG_ENGINE, kObject, 1, 1},
    {kConfig, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kObject, 0, 64},
    {kKnob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, 1},
    {kKnob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, 1},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {kPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kObject, 1, 1},
    {kPack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64},
    {kPack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 64},
    {kPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1},
};

const Rule *rule_of(const Object &o, cudnnBackendAttributeName_t name) {
  for (const Rule &r : kRules)
    if (r.of == o.type && r.name == name) return &r;
  return nullptr;
}

thread_local std::string last_error;

// Runs body, and converts Refused to a status.
template <class Body> cudnnStatus_t guarded(Body body) {
  try {
    body();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refused &r) {
    last_error = r.why;
    return r.status;
  }
}

[[noreturn]] void refuse(cudnnStatus_t status, std::string why) { throw Refused{status, std::move(why)}; }
void want(bool ok, cudnnStatus_t status, const char *why) {
  if (!ok) refuse(status, why);
}

Handle &handle(cudnnBackendDescriptor_t d) {
  want(d, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  return *static_cast<Handle *>(d);
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_BOOLEAN: return 1;
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_VOID_PTR: return 8;
  default: return 4; // enums
  }
}

Attribute copied(cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  Attribute a;
  a.type = type;
  for (int64_t i = 0; i < count; i++) {
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      const Handle &h = handle(static_cast<const cudnnBackendDescriptor_t *>(values)[i]);
      want(h->final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an attribute that is not finalised");
      a.objects.push_back(h);
    } else if (type == CUDNN_TYPE_FLOAT) {
      a.floats.push_back(static_cast<const float *>(values)[i]);
    } else {
      const size_t size = bytes_of(type);
      int64_t v = 0;
      std::memcpy(&v, static_cast<const char *>(values) + size_t(i) * size, size);
      a.numbers.push_back(v);
    }
  }
  return a;
}

void finalize_tensor(const Object &o) {
  const auto &dims = o.list(CUDNN_ATTR_TENSOR_DIMENSIONS), &strides = o.list(CUDNN_ATTR_TENSOR_STRIDES);
  want(dims.size() == strides.size(), CUDNN_STATUS_BAD_PARAM, "dims and strides differ in number");
  for (size_t i = 0; i < dims.size(); i++)
    want(dims[i] > 0 && strides[i] > 0, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "dims and strides: want at least 1");
  const int64_t alignment = o.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  want(alignment > 0 && (alignment & (alignment - 1)) == 0, CUDNN_STATUS_BAD_PARAM, "alignment: want a power of two");
}

void finalize_convolution(const Object &o) {
  const size_t n = static_cast<size_t>(o.number(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  for (const auto name : {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                          CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS}) {
    want(o.list(name).size() == n, CUDNN_STATUS_BAD_PARAM, "as many as there are spatial dims");
    const bool padding = name == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS || name == CUDNN_ATTR_CONVOLUTION_POST_PADDINGS;
    for (int64_t v : o.list(name)) want(v >= (padding ? 0 : 1), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "too small");
  }
}

// Sets the readable attributes of an engine configuration, for configurations of the heuristics and of the caller.
void describe_engine(Object &o, int64_t engine, const Handle &graph) {
  want(engine >= 0 && engine < kEngines, CUDNN_STATUS_NOT_SUPPORTED, "no such engine");
  std::vector<int64_t> notes;
  for (const cudnnBackendNumericalNote_t n : notes_of(engine, *graph)) notes.push_back(n);
  o.put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {engine});
  o.put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes);
  o.put(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
        engine == kCompiled ? std::vector<int64_t>{CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION} : std::vector<int64_t>{});
  o.attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {kObject, {}, {}, {graph}};
}

Handle config_of(int64_t engine, const Handle &graph) {
  auto e = std::make_shared<Object>(Object{kEngine, true, {}}), c = std::make_shared<Object>(Object{kConfig, true, {}});
  describe_engine(*e, engine, graph);
  c->attributes[CUDNN_ATTR_ENGINECFG_ENGINE] = {kObject, {}, {}, {e}};
  Attribute knobs{kObject, {}, {}, {}};
  for (const auto &[type, value] : knobs_of(engine)) {
    auto k = std::make_shared<Object>(Object{kKnob, true, {}});
    k->put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, {type});
    k->put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, {value});
    knobs.objects.push_back(k);
  }
  c->attributes[CUDNN_ATTR_ENGINECFG_KNOB_CHOICES] = knobs;
  return c;
}

void finalize_heuristics(Object &o) {
  const Handle &graph = o.attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH].objects[0];
  Attribute results{kObject, {}, {}, {}};
  for (int64_t e : offered(static_cast<cudnnBackendHeurMode_t>(o.number(CUDNN_ATTR_ENGINEHEUR_MODE))))
    results.objects.push_back(config_of(e, graph));
  o.attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS] = results;
}

void finalize_config(const Object &o) {
  const auto known = knobs_of(o.object(CUDNN_ATTR_ENGINECFG_ENGINE).number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  for (size_t i = 0; o.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) && i < o.size(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); i++) {
    const Object &k = o.object(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
    bool ok = false;
    for (const auto &[type, most] : known)
      ok = ok ||
           (type == k.number(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) && k.number(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) <= most);
    want(ok, CUDNN_STATUS_NOT_SUPPORTED, "the engine has no such knob or value");
  }
}

void finalize_plan(Object &o) {
  const Object &engine = o.object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).object(CUDNN_ATTR_ENGINECFG_ENGINE);
  const int64_t bytes =
      plan_workspace(engine.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), engine.object(CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  o.put(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, {bytes});
}

void finalize(Object &o) {
  switch (o.type) {
  case kTensor: return finalize_tensor(o);
  case kConv: return finalize_convolution(o);
  case kForward:
  case kData:
  case kFilter: return check_conv(conv_of_operation(o));
  case kGraph: return static_cast<void>(conv_of_graph(o));
  case kHeuristics: return finalize_heuristics(o);
  case kEngine:
    return describe_engine(o, o.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX),
                           Handle(o.attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH].objects[0]));
  case kConfig: return finalize_config(o);
  case kPlan: return finalize_plan(o);
  case kPack:
    want(o.list(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size() == o.list(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size(),
         CUDNN_STATUS_BAD_PARAM, "pointers and ids differ in number");
    return;
  default: return;
  }
}

} // namespace

bool setting(const char *word) {
  const char *text = std::getenv("HETERO_SHIM_CUDNN");
  return text && ("," + std::string(text) + ",").find("," + std::string(word) + ",") != std::string::npos;
}

} // namespace fake

using namespace fake;

size_t cudnnGetVersion() { return setting("version8") ? 8907 : 92000; }
const char *cudnnGetErrorString(cudnnStatus_t s) {
  switch (s / 1000 * 1000) {
  case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
  case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
  default: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}
void cudnnGetLastErrorString(char *message, size_t max_size) {
  const size_t n = last_error.copy(message, max_size - 1);
  message[n] = 0;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *h) { return *h = new cudnnContext, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) { return h->stream = s, CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
  *out = new Handle(new Object{type, false, {}});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  return guarded([&] { delete &handle(d); });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  return guarded([&] {
    Object &o = *handle(d);
    const Rule *rule = rule_of(o, name);
    want(!o.final, CUDNN_STATUS_BAD_PARAM, "it is finalised");
    want(rule, CUDNN_STATUS_NOT_SUPPORTED, "no such attribute of this descriptor");
    want(rule->type == type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
    want(count >= 1 && count >= rule->least && count <= rule->most, CUDNN_STATUS_BAD_PARAM, "too few or too many");
    want(values, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no values");
    o.attributes[name] = copied(type, count, values);
  });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  return guarded([&] {
    Object &o = *handle(d);
    want(!o.final, CUDNN_STATUS_BAD_PARAM, "it is finalised");
    for (const Rule &r : kRules)
      want(r.of != o.type || r.least == 0 || o.has(r.name), CUDNN_STATUS_BAD_PARAM, "an attribute is missing");
    finalize(o);
    o.final = true;
  });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values) {
  return guarded([&] {
    const Object &o = *handle(d);
    want(o.final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "it is not finalised");
    want(o.has(name), CUDNN_STATUS_NOT_SUPPORTED, "no such attribute of this descriptor");
    const Attribute &a = o.attributes.at(name);
    want(a.type == type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
    const bool objects = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    const size_t n = objects ? a.objects.size() : a.numbers.size();
    *count = static_cast<int64_t>(n);
    for (size_t i = 0; i < n && static_cast<int64_t>(i) < most; i++) {
      if (!objects) {
        std::memcpy(static_cast<char *>(values) + i * bytes_of(type), &a.numbers[i], bytes_of(type));
        continue;
      }
      Handle &to = handle(static_cast<cudnnBackendDescriptor_t *>(values)[i]);
      want(to->type == a.objects[i]->type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type");
      to = a.objects[i];
    }
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return guarded([&] {
    const Handle p = handle(plan), v = handle(pack);
    want(p->type == kPlan && v->type == kPack, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
         "want a plan and a variant pack");
    want(p->final && v->final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "it is not finalised");
    want(!setting("fail"), CUDNN_STATUS_EXECUTION_FAILED, "as the test wants it");
    execute(p, v, h->stream);
  });
}
