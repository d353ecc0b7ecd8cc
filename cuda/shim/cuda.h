// cuda.h: the functions of the driver that the device looks up, for the host (cuda_runtime.h).
#pragma once

#include <cstdint>

#include "cuda_runtime.h"

enum CUresult { CUDA_SUCCESS = 0 };
struct CUuuid {
  char bytes[16];
};
using CUdevice = int;
enum CUdevice_attribute {
  CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};
constexpr int CU_COMPUTEMODE_PROHIBITED = 2;
using CUdeviceptr = unsigned long long;
using CUstream = cudaStream_t;
constexpr unsigned CU_STREAM_WRITE_VALUE_DEFAULT = 0, CU_STREAM_WAIT_VALUE_EQ = 1;
CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice);
CUresult cuDeviceGetName(char *, int, CUdevice);
CUresult cuDeviceTotalMem(size_t *, CUdevice);
CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, uint32_t, unsigned);
