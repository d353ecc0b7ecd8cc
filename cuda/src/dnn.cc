// dnn.cc
#include "dnn.h"

#include <map>
#include <memory>

#include "gpu.h"
#include "status.h"

namespace hetero {

Dnn::Dnn()
    : library({"cuDNN", "libcudnn" HETERO_CUDA_LIBRARIES ".so.9", "nvidia-cudnn", false}),
      get_version(library.function<decltype(get_version)>("cudnnGetVersion")),
      error_string(library.function<decltype(error_string)>("cudnnGetErrorString")),
      last_error(library.function<decltype(last_error)>("cudnnGetLastErrorString")),
      create(library.function<decltype(create)>("cudnnCreate")),
      set_stream(library.function<decltype(set_stream)>("cudnnSetStream")),
      create_descriptor(library.function<decltype(create_descriptor)>("cudnnBackendCreateDescriptor")),
      destroy_descriptor(library.function<decltype(destroy_descriptor)>("cudnnBackendDestroyDescriptor")),
      set_attribute(library.function<decltype(set_attribute)>("cudnnBackendSetAttribute")),
      get_attribute(library.function<decltype(get_attribute)>("cudnnBackendGetAttribute")),
      finalize(library.function<decltype(finalize)>("cudnnBackendFinalize")),
      execute(library.function<decltype(execute)>("cudnnBackendExecute")),
      version(static_cast<int64_t>(get_version())) {
  library.want_major(version < 90000 ? version / 1000 : version / 10000, CUDNN_MAJOR);
}

// cuDNN compiles its fused engines with NVRTC, which it opens by name. Without NVRTC, cuDNN does not offer these
// engines.
static void open_compiler() {
#ifndef HETERO_CUDA_SHIM
  const std::string file = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
  Library({"NVRTC, which cuDNN needs", file.c_str(), "nvidia-cuda-nvrtc", true});
#endif
}

const Dnn &Dnn::get() {
  static const Dnn *const dnn = (open_compiler(), new Dnn); // after an exception, the next call opens it again
  return *dnn;
}

void check_dnn(cudnnStatus_t status, const char *what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const Dnn &dnn = Dnn::get();
  char detail[512] = "";
  dnn.last_error(detail, sizeof detail);
  detail[sizeof detail - 1] = 0;
  throw DnnError(std::string(what) + ": " + dnn.error_string(status) + (detail[0] ? ": " : "") + detail);
}

namespace {

// The handle of the current device, from a map of handles.
DnnHandle &handle_in(std::map<int, std::unique_ptr<DnnHandle>> &handles) {
  static std::mutex lock;
  int device = 0;
  check(cudaGetDevice(&device), "query the current device");
  std::lock_guard<std::mutex> guard(lock);
  std::unique_ptr<DnnHandle> &h = handles[device];
  if (!h) {
    auto made = std::make_unique<DnnHandle>();
    check_dnn(Dnn::get().create(&made->handle), "cuDNN handle");
    h = std::move(made);
  }
  return *h;
}

} // namespace

DnnHandle &building_handle() {
  static auto *const handles = new std::map<int, std::unique_ptr<DnnHandle>>;
  return handle_in(*handles);
}

DnnHandle &running_handle() {
  static auto *const handles = new std::map<int, std::unique_ptr<DnnHandle>>;
  return handle_in(*handles);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, const char *what) : what_(what) {
  check_dnn(Dnn::get().create_descriptor(type, &raw_), what);
}

Descriptor::~Descriptor() {
  if (raw_) Dnn::get().destroy_descriptor(raw_);
}

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
  std::swap(what_, other.what_);
  std::swap(raw_, other.raw_);
  return *this;
}

Descriptor &Descriptor::raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void *values) {
  check_dnn(Dnn::get().set_attribute(raw_, name, type, count, values), what_);
  return *this;
}

Descriptor &Descriptor::set(cudnnBackendAttributeName_t name, const std::vector<const Descriptor *> &list) {
  std::vector<cudnnBackendDescriptor_t> raws;
  for (const Descriptor *d : list) raws.push_back(d->raw_);
  return raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raws.size()), raws.data());
}

Descriptor &Descriptor::finalize() {
  check_dnn(Dnn::get().finalize(raw_), what_);
  return *this;
}

int64_t Descriptor::read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                         void *values) const {
  int64_t count = 0;
  check_dnn(Dnn::get().get_attribute(raw_, name, type, most, &count, values), what_);
  return count;
}

int64_t Descriptor::number(cudnnBackendAttributeName_t name) const {
  int64_t value = 0;
  read(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

void Descriptor::read(cudnnBackendAttributeName_t name, std::vector<Descriptor> &list) const {
  std::vector<cudnnBackendDescriptor_t> raws;
  for (const Descriptor &d : list) raws.push_back(d.raw_);
  const int64_t count = read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raws.size()), raws.data());
  while (static_cast<int64_t>(list.size()) > count) list.pop_back();
}

} // namespace hetero
