// lab.h: an experiment of the kernel lab. It consists of variants of a kernel, the check of their results, and their
// minimum memory traffic.
//
// To add an experiment, write a function that makes its Trial, declare the function below, and add a line to lab.cu's
// list. CONTRIBUTING.md lists the constructs that kernels may use.
#pragma once

#include <cmath>
#include <functional>

#include "gpu.h"
#include "ops.h"

namespace hetero::lab {

// Activations of a layer, (N, H, W, C) in memory.
struct Images {
  int64_t batch, side, channels; // side: height and width
  int32_t dtype;                 // HT_F32 or HT_BF16

  int64_t rows() const { return batch * side * side; } // a row is the channels of a pixel
  int64_t bytes() const { return rows() * channels * dtype_size(dtype); }
  ht_spec spec() const { return with_layout(make_spec(dtype, {batch, channels, side, side}), kNhwc); }
};

// Calls body with a value of the element type.
template <class Body> auto with_type(const Images &images, Body body) {
  return images.dtype == HT_F32 ? body(float{}) : body(bf16{});
}

// Memory on the device.
class Memory {
public:
  explicit Memory(int64_t bytes) {
    void *p = nullptr;
    check(cudaMalloc(&p, static_cast<size_t>(bytes)), "memory to work on");
    memory_ = std::shared_ptr<void>(p, [](void *q) { cudaFree(q); });
  }
  template <class T> explicit Memory(const std::vector<T> &list) : Memory(int64_t(list.size() * sizeof(T))) {
    check(cudaMemcpy(memory_.get(), list.data(), list.size() * sizeof(T), cudaMemcpyDefault), "input");
  }
  template <class T> T *as() const { return static_cast<T *>(memory_.get()); }

private:
  std::shared_ptr<void> memory_;
};

struct Input {
  Images images;
  std::vector<char> host;
  Memory device;
};

struct Variant {
  std::string name;
  std::function<void()> run; // enqueues the work on the default stream; allocates nothing
};

struct Trial {
  int64_t moves;  // minimum bytes that a pass reads and writes
  int64_t result; // bytes that a pass writes to `to`
  double allowed; // largest error that is allowed
  std::vector<Variant> variants;
  std::function<double(const char *result)> error; // largest error of a result, compared with the host
};

// Returns the greater error. NaN, the value of unwritten memory, counts as the greatest.
inline double worst(double a, double b) { return a != a || a > b ? a : b; }

// The experiments. `to` has space for the images, and for two f32 per channel.
Trial copy(const Input &input, void *to);
Trial batchnorm_stats(const Input &input, void *to);
Trial batchnorm_apply(const Input &input, void *to);

} // namespace hetero::lab
