// gpu.h: common code of all files of the CUDA device: checked calls, launches, element types.
//
// nvcc compiles the sources for GPUs. For tests, the host's compiler compiles the same sources, and the headers of
// ../shim replace CUDA's. CONTRIBUTING.md lists the constructs that work in both. Use launch() instead of <<<>>>.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "check.h"
#include "kernel.h"
#include "operands.h"
#include "specs.h"

namespace hetero {

// The layout (N, H, W, C) of images, which this device prefers to plain (N, C, H, W).
constexpr uint32_t kNhwc = HT_LAYOUT_FIRST_PRIVATE;

// Default number of threads per block, a multiple of a warp. On the host, where a thread is a fiber, smaller blocks are
// faster.
#ifdef __CUDACC__
constexpr int kThreads = 256;
#else
constexpr int kThreads = 64;
#endif

struct Grid {
  int64_t x, y = 1, z = 1; // blocks
  int threads = kThreads;
  int shared = 0; // bytes of a block's dynamic shared memory
};

// Returns the grid of a grid-stride loop over n elements, with at most 4096 blocks. This fills any GPU several times.
inline Grid over(int64_t n) {
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return {blocks < 1 ? 1 : blocks > 4096 ? 4096 : blocks};
}

// For files with kernels only: compiled by nvcc, or by the host's compiler with the shim.
#if defined(__CUDACC__) || defined(HETERO_CUDA_SHIM)

template <class... Params, class... Args> void launch(void (*kernel)(Params...), Grid grid, void *queue, Args... args) {
  if (grid.x == 0) return; // no work; CUDA would report an invalid configuration
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
#ifdef __CUDACC__
  // A kernel must ask for more than 48 KiB of dynamic and static shared memory together.
  constexpr int kMostStatic = 16 << 10, kWithoutAsking = (48 << 10) - kMostStatic;
  if (grid.shared > kWithoutAsking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared),
          "reserve shared memory");
  kernel<<<blocks, static_cast<unsigned>(grid.threads), static_cast<size_t>(grid.shared),
           static_cast<cudaStream_t>(queue)>>>(static_cast<Params>(args)...);
  check(cudaGetLastError(), "launch a kernel");
#else
  check(shim::load(queue, std::to_string(reinterpret_cast<uintptr_t>(kernel))) ? cudaSuccess : shimErrorStands,
        "launch a kernel");
  shim::enqueue(queue, shim::kLaunch, [=] {
    shim::run(
        blocks, static_cast<unsigned>(grid.threads), [=] { kernel(static_cast<Params>(args)...); },
        static_cast<size_t>(grid.shared));
  });
#endif
}

// The block's dynamic shared memory, at a multiple of 16.
#ifdef __CUDACC__
extern __shared__ uint4 dynamic_shared_memory[];
__device__ inline char *dynamic_shared() { return reinterpret_cast<char *>(dynamic_shared_memory); }
#else
inline char *dynamic_shared() { return shim::dynamic_shared(); }
#endif

// The index of this thread in the grid, and the step of a grid-stride loop.
__device__ inline int64_t first_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t index_stride() { return int64_t{gridDim.x} * blockDim.x; }

#endif

using bf16 = __nv_bfloat16;
using f16 = __half;

__host__ __device__ inline float load(const float *p) { return *p; }
__host__ __device__ inline float load(const bf16 *p) { return __bfloat162float(*p); }
__host__ __device__ inline float load(const f16 *p) { return __half2float(*p); }
__host__ __device__ inline void store(float *p, float v) { *p = v; }
__host__ __device__ inline void store(bf16 *p, float v) { *p = __float2bfloat16_rn(v); }
__host__ __device__ inline void store(f16 *p, float v) { *p = __float2half_rn(v); }

// N adjacent values of T, by default 16 bytes, which one instruction loads or stores. Larger packs take several
// instructions. The address of a pack is a multiple of 16, or of the pack's size if that is smaller.
template <class T, int N = 16 / sizeof(T)> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  static constexpr int size = N;
  T v[N];
};

#if defined(__CUDACC__) || defined(HETERO_CUDA_SHIM)
// Loads V elements, starting at `at`, as a Pack.
template <int V, class T> __device__ void load_row(const T *from, int64_t at, float *out) {
  const Pack<T, V> pack = *reinterpret_cast<const Pack<T, V> *>(from + at);
  for (int v = 0; v < V; v++) out[v] = load(&pack.v[v]);
}

template <int V, class T> __device__ void store_row(T *to, int64_t at, const float *in) {
  Pack<T, V> pack;
  for (int v = 0; v < V; v++) store(&pack.v[v], in[v]);
  *reinterpret_cast<Pack<T, V> *>(to + at) = pack;
}
#endif

// Calls body with a value of the type that spec.dtype names. Throws Unsupported for other types.
template <class Body> auto with_float(const ht_spec &spec, Body body) {
  switch (spec.dtype) {
  case HT_F32: return body(float{});
  case HT_BF16: return body(bf16{});
  case HT_F16: return body(f16{});
  }
  throw Unsupported("element type: got " + describe(spec) + ", want f32, bf16 or f16");
}

// Sets one layout, plain or nhwc, for the images at these positions, and returns whether it is nhwc. The layout is the
// first of these that exists:
//
//   - the layout to which an output is bound (operands.h)
//   - the layout for which the opaque input at position made_for was made; made_for < 0: there is no such input
//   - the layout of the first input that has a definite layout
//   - nhwc
bool choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                         int made_for = -1);

// The specs, workspace and in-place pairs of a kernel, which a factory sets before the kernel exists.
struct Specced : Kernel {
  void run(const Args &) override {}
};

// A kernel that runs a function object: body(const Args &).
template <class Body> struct Launcher : Kernel {
  Body body;
  explicit Launcher(Body b) : body(std::move(b)) {}
  void run(const Args &args) override { body(args); }
};

// Creates a kernel that has these specs, workspace and in-place pairs, and runs body.
template <class Body> std::unique_ptr<Kernel> launcher(const Specced &specs, Body body) {
  auto k = std::make_unique<Launcher<Body>>(std::move(body));
  k->in = specs.in;
  k->out = specs.out;
  k->workspace = specs.workspace;
  k->inplace = specs.inplace;
  return k;
}

// Return the properties of a device. query_facts queries CUDA, which takes milliseconds, and caches the result;
// cuda_open calls it. device_facts returns the cached result for the device in use.
cudaDeviceProp query_facts(int device);
cudaDeviceProp device_facts();

// Data of a kernel in device memory. Kernels are destroyed at quiescence (quiet.h), because their destruction frees
// this memory.
class Table {
public:
  Table(const void *data, size_t bytes);
  template <class T> explicit Table(const std::vector<T> &list) : Table(list.data(), list.size() * sizeof(T)) {}
  template <class T> const T *as() const { return static_cast<const T *>(memory_.get()); }

private:
  std::shared_ptr<void> memory_;
};

// Returns whether all addresses are multiples of 16.
inline bool aligned(std::initializer_list<const void *> addresses) {
  for (const void *p : addresses)
    if (reinterpret_cast<uintptr_t>(p) % 16) return false;
  return true;
}

} // namespace hetero
