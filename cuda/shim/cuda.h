// cuda.h: the functions of the driver that the device looks up, for the host (cuda_runtime.h).
#pragma once

#include <cstdint>

#include "cuda_runtime.h"

enum CUresult { CUDA_SUCCESS = 0 };
struct CUuuid {
  char bytes[16];
};
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUstream = cudaStream_t;
constexpr unsigned CU_STREAM_WRITE_VALUE_DEFAULT = 0, CU_STREAM_WAIT_VALUE_EQ = 1;
CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, uint32_t, unsigned);
