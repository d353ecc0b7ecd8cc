// dnn.h: cuDNN's graph API as C++ objects. libcudnn.so.9 is opened at the first use. This file is not cudnn.h, the
// header of cuDNN.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "libraries.h"

namespace hetero {

// The functions of cuDNN that this program uses.
struct Dnn {
  Library library;
  decltype(&cudnnGetVersion) get_version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error;
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
  int64_t version; // 92000 is 9.20.0

  // Throws Unavailable if there is no cuDNN of the version for which this program was built.
  static const Dnn &get();

private:
  Dnn();
};

struct DnnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check_dnn(cudnnStatus_t status, const char *what); // throws DnnError

// A handle of the current device. Only a thread that holds lock may use it.
struct DnnHandle {
  std::mutex lock;
  cudnnHandle_t handle = nullptr;
};

// Handles exist until the process ends. Plans are built with a handle of their own, because building one can take a
// second, and launches must not wait for it.
DnnHandle &building_handle();
DnnHandle &running_handle();

// A descriptor of cuDNN's backend API. The caller creates it, sets its attributes and finalises it. Then the caller
// reads it, or other descriptors refer to it. Error texts contain its name.
class Descriptor {
public:
  Descriptor(cudnnBackendDescriptorType_t type, const char *what);
  ~Descriptor();
  Descriptor(Descriptor &&other) noexcept : what_(other.what_), raw_(other.raw_) { other.raw_ = nullptr; }
  Descriptor &operator=(Descriptor &&other) noexcept;

  Descriptor &set(cudnnBackendAttributeName_t name, int64_t value) { return raw(name, CUDNN_TYPE_INT64, 1, &value); }
  Descriptor &set(cudnnBackendAttributeName_t name, bool value) { return raw(name, CUDNN_TYPE_BOOLEAN, 1, &value); }
  Descriptor &set(cudnnBackendAttributeName_t name, float value) { return raw(name, CUDNN_TYPE_FLOAT, 1, &value); }
  Descriptor &set(cudnnBackendAttributeName_t name, void *value) { return raw(name, CUDNN_TYPE_VOID_PTR, 1, &value); }
  Descriptor &set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
    return raw(name, CUDNN_TYPE_HANDLE, 1, &value);
  }
  Descriptor &set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return raw(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  Descriptor &set(cudnnBackendAttributeName_t name, const std::vector<int64_t> &list) {
    return raw(name, CUDNN_TYPE_INT64, static_cast<int64_t>(list.size()), list.data());
  }
  Descriptor &set(cudnnBackendAttributeName_t name, const std::vector<void *> &list) {
    return raw(name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(list.size()), list.data());
  }
  Descriptor &set(cudnnBackendAttributeName_t name, const Descriptor &d) {
    return raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d.raw_);
  }
  Descriptor &set(cudnnBackendAttributeName_t name, const std::vector<const Descriptor *> &list);
  Descriptor &raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void *values);
  Descriptor &finalize();

  // Reads at most `most` values, and returns the number of values that the attribute has.
  int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most, void *values) const;
  int64_t number(cudnnBackendAttributeName_t name) const;
  // Fills `list`, whose descriptors were created for the attribute, and removes the descriptors that cuDNN did not
  // fill.
  void read(cudnnBackendAttributeName_t name, std::vector<Descriptor> &list) const;

  cudnnBackendDescriptor_t get() const { return raw_; }

private:
  const char *what_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

} // namespace hetero
