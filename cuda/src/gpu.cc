// gpu.cc: checked calls, layout choices and tables in device memory.
#include "gpu.h"

#include "status.h"

namespace hetero {

void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  const std::string text = std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw std::runtime_error(text);
}

int64_t private_bytes(const ht_spec &spec) {
  if (spec.layout != kNhwc || spec.ndim != 4)
    throw Invalid("layout " + std::to_string(spec.layout) + " is none of this device's");
  return elements(spec) * dtype_size(spec.dtype);
}

std::string layout_name(uint32_t layout) {
  switch (layout) {
  case HT_LAYOUT_PLAIN: return "plain";
  case HT_LAYOUT_ANY: return "any";
  case kNhwc: return "nhwc";
  }
  return "layout " + std::to_string(layout);
}

void want_f32(const ht_spec &spec) {
  if (spec.dtype != HT_F32) throw Unsupported("element type of " + describe(spec) + ", want f32");
}

void take_plain(Kernel &kernel, const Request &request) {
  kernel.in = request.in;
  kernel.out = request.out;
  for (Specs *specs : {&kernel.in, &kernel.out}) {
    for (ht_spec &s : *specs) {
      if (s.dtype == HT_OPAQUE) continue;
      if (specs == &kernel.out && s.layout != HT_LAYOUT_PLAIN && s.layout != HT_LAYOUT_ANY)
        throw Unsupported("an output in layout " + layout_name(s.layout) + ", want plain");
      s = with_layout(s, HT_LAYOUT_PLAIN);
    }
  }
}

namespace {

// The layout that outputs bind, HT_LAYOUT_ANY if none does.
uint32_t bound_layout(const Request &request, std::initializer_list<int> out) {
  uint32_t bound = HT_LAYOUT_ANY;
  for (int i : out) {
    const uint32_t l = request.out[size_t(i)].layout;
    if (l == HT_LAYOUT_ANY) continue;
    if (bound != HT_LAYOUT_ANY && bound != l)
      throw Unsupported("outputs in layouts " + layout_name(bound) + " and " + layout_name(l) + ", want one layout");
    bound = l;
  }
  return bound;
}

void give_layout(Kernel &kernel, const Request &request, std::initializer_list<int> in, std::initializer_list<int> out,
                 uint32_t layout) {
  for (int i : in) kernel.in[size_t(i)] = with_layout(request.in[size_t(i)], layout);
  for (int i : out) kernel.out[size_t(i)] = with_layout(request.out[size_t(i)], layout);
}

} // namespace

bool choose_image_layout(Kernel &kernel, const Request &request, std::initializer_list<int> in,
                         std::initializer_list<int> out, int made_for) {
  uint32_t layout = bound_layout(request, out);
  if (made_for >= 0) {
    const uint32_t made = request.in[size_t(made_for)].layout;
    if (layout != HT_LAYOUT_ANY && layout != made)
      throw Unsupported("an output in layout " + layout_name(layout) + " beside an operand made for " +
                        layout_name(made));
    layout = made;
  }
  for (int i : in)
    if (layout == HT_LAYOUT_ANY) layout = request.in[size_t(i)].layout;
  if (layout == HT_LAYOUT_ANY) layout = kNhwc;
  if (layout != HT_LAYOUT_PLAIN && layout != kNhwc) throw Unsupported("images in layout " + layout_name(layout));
  give_layout(kernel, request, in, out, layout);
  return layout == kNhwc;
}

void choose_shared_layout(Kernel &kernel, const Request &request, std::initializer_list<int> in,
                          std::initializer_list<int> out) {
  uint32_t layout = bound_layout(request, out);
  for (int i : in)
    if (layout == HT_LAYOUT_ANY) layout = request.in[size_t(i)].layout;
  give_layout(kernel, request, in, out, layout == HT_LAYOUT_ANY ? HT_LAYOUT_PLAIN : layout);
}

Table::Table(const void *data, size_t bytes) {
  void *p = nullptr;
  check(cudaMalloc(&p, bytes ? bytes : 1), "a table of a kernel");
  memory_ = std::shared_ptr<void>(p, [](void *q) { cudaFree(q); });
  if (bytes) check(cudaMemcpy(p, data, bytes, cudaMemcpyHostToDevice), "copying a table of a kernel");
}

} // namespace hetero
