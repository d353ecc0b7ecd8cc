// cudnn_engines.cc: graphs, engines and execution of the fake cuDNN.
//
// The engines:
//
//     0  is offered, but accepts no graph
//     1  is nondeterministic; fast, with wrong results
//     2  uses Winograd; fast, with wrong results
//     3  simulates tensor cores: accepts chains, needs channels in multiples of 16 bytes and a workspace, and rounds
//        f32 operands to TF32
//     4  accepts single convolutions
//     5  accepts single convolutions, but is slow, and is offered only as a fallback
//
// The tensors of a single convolution must have one type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "cudnn_fake.h"

namespace fake {
namespace {

[[noreturn]] void refuse(cudnnStatus_t status, const char *why) { throw Refused{status, why}; }

const std::vector<int64_t> &dims(const Object &t) { return t.list(CUDNN_ATTR_TENSOR_DIMENSIONS); }
const std::vector<int64_t> &strides(const Object &t) { return t.list(CUDNN_ATTR_TENSOR_STRIDES); }
int64_t type(const Object &t) { return t.number(CUDNN_ATTR_TENSOR_DATA_TYPE); }
int64_t uid(const Object &t) { return t.number(CUDNN_ATTR_TENSOR_UNIQUE_ID); }
int64_t size_of(const Object &t) { return type(t) == CUDNN_DATA_FLOAT ? 4 : 2; }
bool is_virtual(const Object &t) {
  return t.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && t.number(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
}
int64_t elements(const Object &t) {
  int64_t n = 1;
  for (int64_t d : dims(t)) n *= d;
  return n;
}

// Returns a tensor as f32, in the order of its dims.
std::vector<float> read(const Object &t, const void *at) {
  const auto &d = dims(t), &s = strides(t);
  std::vector<float> out;
  out.reserve(size_t(elements(t)));
  for (int64_t a = 0; a < d[0]; a++)
    for (int64_t b = 0; b < d[1]; b++)
      for (int64_t y = 0; y < d[2]; y++)
        for (int64_t x = 0; x < d[3]; x++) {
          const int64_t i = a * s[0] + b * s[1] + y * s[2] + x * s[3];
          if (type(t) == CUDNN_DATA_FLOAT)
            out.push_back(static_cast<const float *>(at)[i]);
          else if (type(t) == CUDNN_DATA_HALF)
            out.push_back(__half2float(static_cast<const __half *>(at)[i]));
          else
            out.push_back(__bfloat162float(static_cast<const __nv_bfloat16 *>(at)[i]));
        }
  return out;
}

void write(const Object &t, void *at, const std::vector<double> &values) {
  const auto &d = dims(t), &s = strides(t);
  size_t k = 0;
  for (int64_t a = 0; a < d[0]; a++)
    for (int64_t b = 0; b < d[1]; b++)
      for (int64_t y = 0; y < d[2]; y++)
        for (int64_t x = 0; x < d[3]; x++) {
          const int64_t i = a * s[0] + b * s[1] + y * s[2] + x * s[3];
          const float v = static_cast<float>(values[k++]);
          if (type(t) == CUDNN_DATA_FLOAT)
            static_cast<float *>(at)[i] = v;
          else if (type(t) == CUDNN_DATA_HALF)
            static_cast<__half *>(at)[i] = __float2half_rn(v);
          else
            static_cast<__nv_bfloat16 *>(at)[i] = __float2bfloat16_rn(v);
        }
}

// Calls body for every product of the convolution, with the indices of its elements of x, w and y. The pass determines
// which of these tensors is the result.
template <class Body> void each_product(const Conv &c, Body body) {
  const auto &x = dims(*c.x), &w = dims(*c.w), &y = dims(*c.y);
  const auto &stride = c.conv->list(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
             &pad = c.conv->list(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             &dilation = c.conv->list(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const int64_t groups = x[1] / w[1], per_group = w[0] / groups;
  for (int64_t n = 0; n < y[0]; n++)
    for (int64_t o = 0; o < y[1]; o++)
      for (int64_t i = 0; i < w[1]; i++)
        for (int64_t kh = 0; kh < w[2]; kh++)
          for (int64_t kw = 0; kw < w[3]; kw++) {
            const int64_t step = stride[1], left = kw * dilation[1] - pad[1];
            const int64_t first = left < 0 ? (step - 1 - left) / step : 0;
            const int64_t end = left < x[3] ? std::min(y[3], (x[3] - 1 - left) / step + 1) : 0;
            for (int64_t oy = 0; oy < y[2]; oy++) {
              const int64_t iy = oy * stride[0] - pad[0] + kh * dilation[0];
              if (iy < 0 || iy >= x[2]) continue;
              const int64_t row = ((n * x[1] + o / per_group * w[1] + i) * x[2] + iy) * x[3];
              const int64_t tap = ((o * w[1] + i) * w[2] + kh) * w[3] + kw, line = ((n * y[1] + o) * y[2] + oy) * y[3];
              for (int64_t ox = first; ox < end; ox++)
                body(size_t(row + left + ox * step), size_t(tap), size_t(line + ox));
            }
          }
}

void round_to_tf32(std::vector<float> &values) {
  for (float &v : values) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    bits &= 0xffffe000u;
    std::memcpy(&v, &bits, 4);
  }
}

void *address(const Object &pack, const Object &t) {
  const auto &ids = pack.list(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
             &at = pack.list(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < ids.size(); i++)
    if (ids[i] == uid(t)) {
      if (at[i] == 0 || at[i] % t.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
        refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "an address that is not aligned as its tensor says");
      return reinterpret_cast<void *>(at[i]);
    }
  refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has no address");
}

bool nhwc(const Object &t) { return strides(t)[1] == 1; }

bool aligned_channels(const Conv &c) {
  bool ok = true;
  for (const Object *t : {c.x, c.y}) ok = ok && dims(*t)[1] * size_of(*c.x) % 16 == 0;
  return ok;
}

// Returns the tensor that the convolution writes, before a second operation.
const Object *conv_result(const Conv &c) {
  switch (c.pass) {
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return c.y;
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return c.x;
  default: return c.w;
  }
}

std::vector<const Object *> operands(const Conv &c) {
  std::vector<const Object *> list{c.out};
  for (const Object *t : {c.x, c.w, c.y})
    if (t != conv_result(c)) list.push_back(t);
  if (c.bias) list.push_back(c.bias);
  return list;
}

} // namespace

Conv conv_of_operation(const Object &o) {
  Conv c{};
  c.pass = o.type;
  if (o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
    c.conv = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    c.x = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    c.w = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    c.y = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  } else if (o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    c.conv = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
    c.x = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
    c.w = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
    c.y = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
  } else if (o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
    c.conv = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
    c.x = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
    c.w = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
    c.y = &o.object(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  } else {
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "a graph that begins with no convolution");
  }
  c.out = conv_result(c);
  return c;
}

void check_conv(const Conv &c) {
  const auto &x = dims(*c.x), &w = dims(*c.w), &y = dims(*c.y);
  if (x.size() != 4 || w.size() != 4 || y.size() != 4) refuse(CUDNN_STATUS_BAD_PARAM, "want four dims");
  const int64_t groups = x[1] / w[1];
  bool ok = x[1] % w[1] == 0 && w[0] % groups == 0 && x[0] == y[0] && y[1] == w[0];
  for (size_t d = 0; d < 2; d++) {
    const int64_t stride = c.conv->list(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[d],
                  pad = c.conv->list(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[d] +
                        c.conv->list(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)[d],
                  window = c.conv->list(CUDNN_ATTR_CONVOLUTION_DILATIONS)[d] * (w[d + 2] - 1) + 1;
    ok = ok && (x[d + 2] + pad - window) / stride + 1 == y[d + 2];
  }
  if (!ok) refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "x, w and y do not fit");
}

Conv conv_of_graph(const Object &graph) {
  Conv c = conv_of_operation(graph.object(CUDNN_ATTR_OPERATIONGRAPH_OPS, 0));
  const size_t operations = graph.size(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (operations == 2) {
    const Object &next = graph.object(CUDNN_ATTR_OPERATIONGRAPH_OPS, 1), &sum = *conv_result(c);
    if (next.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
        uid(next.object(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != uid(sum) || !is_virtual(sum))
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "want a convolution, and something done with its virtual result");
    const int64_t mode = next.object(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).number(CUDNN_ATTR_POINTWISE_MODE);
    if ((mode == CUDNN_POINTWISE_ADD) != next.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
      refuse(CUDNN_STATUS_BAD_PARAM, "an addition has two operands, an identity one");
    if (mode == CUDNN_POINTWISE_ADD) c.bias = &next.object(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    c.out = &next.object(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if ((c.bias && dims(*c.bias) != std::vector<int64_t>{1, dims(sum)[1], 1, 1}) || dims(*c.out) != dims(sum))
      refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the bias or the result does not fit");
  }
  bool plain = operations <= 2;
  for (const Object *t : operands(c)) plain = plain && !is_virtual(*t);
  if (!plain) refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such pattern");
  if (c.conv->number(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
      c.conv->number(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "another compute type or mode");
  return c;
}

std::vector<cudnnBackendNumericalNote_t> notes_of(int64_t engine, const Object &) {
  switch (engine) {
  case 1: return {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  case 2: return {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4};
  case 3: return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  default: return {};
  }
}

std::vector<int64_t> offered(cudnnBackendHeurMode_t mode) {
  if (setting("no-engines")) return {};
  return mode == CUDNN_HEUR_MODE_A ? std::vector<int64_t>{0, 1, 2, 3, 4} : std::vector<int64_t>{4, 5};
}

std::vector<std::pair<int64_t, int64_t>> knobs_of(int64_t engine) {
  if (engine == 3) return {{CUDNN_KNOB_TYPE_TILE_SIZE, 1}};
  return {};
}

int64_t plan_workspace(int64_t engine, const Object &graph) {
  const Conv c = conv_of_graph(graph);
  if (engine == 0) refuse(CUDNN_STATUS_NOT_SUPPORTED, "this engine takes nothing");
  if (setting("aligned") && !aligned_channels(c)) refuse(CUDNN_STATUS_NOT_SUPPORTED, "channels are not aligned");
  if (c.out != conv_result(c)) {
    if (engine != 3 || setting("single")) refuse(CUDNN_STATUS_NOT_SUPPORTED, "a convolution alone is all it takes");
  } else {
    for (const Object *t : operands(c))
      if (type(*t) != type(*c.out)) refuse(CUDNN_STATUS_NOT_SUPPORTED, "tensors of several types");
  }
  if (engine != 3) return 0;
  if (!aligned_channels(c) || !nhwc(*c.x) || dims(*c.x)[1] != dims(*c.w)[1])
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "channels are not aligned, not the last dimension, or in groups");
  return 8 * elements(*c.out);
}

namespace {

void compute(int64_t engine, const Object &graph, const Object &pack) {
  const Conv c = conv_of_graph(graph);
  const bool forward = c.pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
             data = c.pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  std::vector<float> x, w, y;
  if (!data) x = read(*c.x, address(pack, *c.x));
  if (forward || data) w = read(*c.w, address(pack, *c.w));
  if (!forward) y = read(*c.y, address(pack, *c.y));
  if (engine == 3 && type(*c.x) == CUDNN_DATA_FLOAT)
    for (std::vector<float> *v : {&x, &w, &y}) round_to_tf32(*v);
  const Object &to = *c.out;
  std::vector<double> sum(size_t(elements(to)));
  double *const s = sum.data();
  const float *const px = x.data(), *const pw = w.data(), *const py = y.data();
  if (forward)
    each_product(c, [=](size_t i, size_t j, size_t k) { s[k] += double(px[i]) * double(pw[j]); });
  else if (data)
    each_product(c, [=](size_t i, size_t j, size_t k) { s[i] += double(py[k]) * double(pw[j]); });
  else
    each_product(c, [=](size_t i, size_t j, size_t k) { s[j] += double(px[i]) * double(py[k]); });
  if (c.bias) {
    const std::vector<float> bias = read(*c.bias, address(pack, *c.bias));
    const size_t pixels = size_t(dims(to)[2] * dims(to)[3]);
    for (size_t i = 0; i < sum.size(); i++) sum[i] += double(bias[i / pixels % bias.size()]);
  }
  if (engine == 1 || engine == 2)
    for (double &v : sum) v += 0.01;
  if (engine == 3) { // uses the whole workspace, so that tests detect a workspace that is too small
    auto *workspace = reinterpret_cast<double *>(pack.number(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
    std::memcpy(workspace, sum.data(), 8 * sum.size());
    std::memcpy(sum.data(), workspace, 8 * sum.size());
  }
  write(to, address(pack, to), sum);
}

} // namespace

void execute(const Handle &plan, const Handle &pack, cudaStream_t stream) {
  const Object &e = plan->object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).object(CUDNN_ATTR_ENGINECFG_ENGINE),
               &graph = e.object(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  const int64_t engine = e.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  const Conv c = conv_of_graph(graph);
  for (const Object *t : operands(c)) address(*pack, *t);
  if (plan->number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) > 0 &&
      pack->number(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) == 0)
    refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace");
  static constexpr int64_t kMicroseconds[kEngines] = {1, 1, 1, 2, 10, 40};
  const auto work = [=, &graph] { compute(engine, graph, *pack), void(plan); };
  std::string code = "cuDNN " + std::to_string(engine);
  if (engine == kCompiled) code += " of plan " + std::to_string(reinterpret_cast<uintptr_t>(plan.get()));
  if (stream && !stream->load(code))
    refuse(CUDNN_STATUS_EXECUTION_FAILED, "loading its code would wait for a stream that stands");
  if (stream)
    stream->enqueue(1000 * kMicroseconds[engine], work);
  else
    work();
}

} // namespace fake
