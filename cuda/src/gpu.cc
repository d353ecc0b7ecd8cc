// gpu.cc: properties of the device, names of layouts, and tables in device memory.
#include "gpu.h"

#include <map>
#include <mutex>

#include "quiet.h"

namespace hetero {
namespace {

struct KnownFacts {
  std::mutex lock;
  std::map<int, cudaDeviceProp> of; // by device
};
KnownFacts &known_facts() {
  static KnownFacts known;
  return known;
}

} // namespace

cudaDeviceProp query_facts(int device) {
  cudaDeviceProp facts{};
  check(cudaGetDeviceProperties(&facts, device), "query the device's properties");
  KnownFacts &known = known_facts();
  const std::lock_guard<std::mutex> hold(known.lock);
  return known.of[device] = facts;
}

cudaDeviceProp device_facts() {
  int device = 0;
  check(cudaGetDevice(&device), "query the current device");
  {
    KnownFacts &known = known_facts();
    const std::lock_guard<std::mutex> hold(known.lock);
    if (const auto facts = known.of.find(device); facts != known.of.end()) return facts->second;
  }
  return query_facts(device);
}

int64_t private_bytes(const ht_spec &spec) {
  if (spec.layout != kNhwc || spec.ndim != 4) throw Invalid("this device has no layout " + std::to_string(spec.layout));
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

bool choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                         int made_for) {
  uint32_t layout = bound_layout(request, out, made_for);
  for (int i : in)
    if (layout == HT_LAYOUT_ANY) layout = request.in[size_t(i)].layout;
  if (layout == HT_LAYOUT_ANY) layout = kNhwc;
  if (layout != HT_LAYOUT_PLAIN && layout != kNhwc)
    throw Unsupported("images: got layout " + layout_name(layout) + ", want plain or nhwc");
  give_layout(kernel, request, in, out, layout);
  return layout == kNhwc;
}

Table::Table(const void *data, size_t bytes) {
  void *p = nullptr;
  check(cudaMalloc(&p, bytes ? bytes : 1), "allocate a kernel's table");
  memory_ = std::shared_ptr<void>(p, [](void *q) { // also runs if the creation of the kernel fails
    Quiet::discard(std::shared_ptr<void>(q, [](void *r) { Quiet::freed(cudaFree(r), "a kernel's table"); }));
  });
  if (!bytes) return;
  check(cudaMemcpy(p, data, bytes, cudaMemcpyHostToDevice), "copy a kernel's table");
  // A copy from pageable memory may still be in progress when the call returns. The streams of kernels do not wait for
  // the copy's stream.
  check(cudaStreamSynchronize(nullptr), "copy a kernel's table");
}

} // namespace hetero
