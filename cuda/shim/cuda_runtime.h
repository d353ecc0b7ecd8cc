// cuda_runtime.h: replaces CUDA's header where tests compile the kernels for the host.
//
// A launch runs the blocks one after another. The threads of a block are fibers, so barriers and shuffles work. A
// stream is a thread, which runs its work some time after the calls. A captured graph is a list of work. Memory is host
// memory.
//
// A free waits for the whole GPU, and so does the first launch of a kernel, which loads its code. If a stream is
// blocked on a word at that time, the shim refuses these calls, because on a GPU they could wait forever.
//
// HETERO_SHIM_GPUS sets the number of GPUs (default 1).
//
// Events measure a modelled time, so choices by timing are the same in every run. Every launch, copy and memset
// advances it by a microsecond, and fake libraries advance it by fixed times. A stream that is blocked on a word
// advances it by the real duration.
#pragma once

#define HETERO_CUDA_SHIM 1
#define CUDART_VERSION 13000

#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace shim {
// Indices of the running thread, and the sizes of its block and grid. They are __thread, because thread_local would
// call a function for each access.
extern __thread dim3 block_index, thread_index, block_size, grid_size;
// Runs a kernel. `shared` is the number of bytes of a block's dynamic shared memory, which contains NaN when a block
// starts.
void run(dim3 grid, unsigned threads, const std::function<void()> &thread, size_t shared = 0);
bool lost(bool one_more = false); // whether the GPU has fallen off the bus; one_more counts a launch or copy
// Runs work at its turn on the stream, or immediately without a stream. ns is the work's modelled time.
void enqueue(void *stream, int64_t ns, std::function<void()> work);
// Loads the code of a kernel on the device of the calling thread, unless it is already loaded. In a capture, the code
// is loaded when the graph is created. Returns false if a stream is blocked.
bool load(void *stream, const std::string &code);
constexpr int64_t kLaunch = 1000; // modelled time of a launch, copy or memset, in ns
void barrier();
// Passes value to the other lanes of the warp, and returns the value of `lane`. If this lane does not exist, returns
// the caller's value.
uint64_t exchange(uint64_t value, unsigned lane);
// Performs an instruction of a whole warp. All lanes of the warp must call it. compute receives the operands of all
// lanes, up to kOperand bytes each, and returns kResult bytes for each lane.
constexpr size_t kOperand = 48, kResult = 16;
using WarpOperands = const unsigned char *const (&)[32];
using WarpResults = unsigned char *const (&)[32];
void whole_warp(const void *own, size_t bytes, void *result, void (*compute)(WarpOperands, WarpResults));
int chosen_gpu(); // number of this thread's GPU in the machine
unsigned lane();
char *dynamic_shared(); // of the running block

// An asynchronous copy to shared memory. As on a GPU, the data arrive only when the thread waits for them. The bytes
// from `valid` on become zero.
void copy_later(void *to, const void *from, unsigned bytes, unsigned valid);
void end_copy_group();
void await_copies(unsigned groups);        // waits until at most this number of the thread's groups is pending
[[noreturn]] void fault(const char *what); // ends the process for a fault that a GPU reports as an error of the kernel

template <class T> T shuffle(T value, unsigned from) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
} // namespace shim

#define blockIdx shim::block_index
#define threadIdx shim::thread_index
#define blockDim shim::block_size
#define gridDim shim::grid_size

inline void __syncthreads() { shim::barrier(); }
inline void __syncwarp() { shim::exchange(0, shim::lane()); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
  return shim::shuffle(value, shim::lane() ^ unsigned(mask));
}
template <class T> T __shfl_down_sync(unsigned, T value, unsigned delta) {
  return shim::shuffle(value, shim::lane() + delta);
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorUnknown = 999,
  shimErrorStands = 10001 // the call would wait for a stream that is blocked on a word
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaStreamNonBlocking = 1,
                   cudaEventDisableTiming = 2;
constexpr unsigned cudaEnableDefault = 0;

// The interface of a stream for fake libraries.
struct shimStream {
  explicit shimStream(int gpu) : gpu(gpu) {}
  const int gpu; // number in the machine, not among the GPUs that the process sees
  // Runs work at its turn; ns is its modelled time.
  virtual void enqueue(int64_t ns, std::function<void()> work) = 0;
  virtual bool load(const std::string &code) = 0; // see shim::load

protected:
  ~shimStream() = default;
};

// The interface for a fake profiler: hetero_shim_watch sets or removes one. Nodes of graphs have numbers; other work
// has node 0.
enum shimKind { shimKernel, shimCopy, shimFill };
struct shimWatcher {
  virtual void added(uint64_t node) = 0; // on the thread that captures
  virtual void cloned(uint64_t node, uint64_t from) = 0;
  virtual void did(shimKind kind, uint64_t bytes, uint64_t node, unsigned stream, int64_t begin, int64_t end) = 0;
  virtual void called(const char *function, int64_t begin, int64_t end) = 0;

protected:
  ~shimWatcher() = default;
};
extern "C" void hetero_shim_watch(shimWatcher *watcher);

using cudaStream_t = shimStream *;
using cudaEvent_t = struct shimEvent *;
using cudaGraph_t = struct shimGraph *;
using cudaGraphExec_t = struct shimGraph *;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount, l2CacheSize;
};
namespace shim {
cudaDeviceProp facts(); // all GPUs are equal
}

cudaError_t cudaDriverGetVersion(int *);
cudaError_t cudaRuntimeGetVersion(int *);
cudaError_t cudaGetDeviceCount(int *);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int *);
cudaError_t cudaDeviceGetPCIBusId(char *, int, int);
cudaError_t cudaMemGetInfo(size_t *, size_t *);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *, int);
cudaError_t cudaGetLastError();
const char *cudaGetErrorName(cudaError_t);
const char *cudaGetErrorString(cudaError_t);
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaHostAlloc(void **, size_t, unsigned);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaMemcpy(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *, unsigned, int);
cudaError_t cudaDeviceGetStreamPriorityRange(int *, int *);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *);
