// memops.cc
#include "memops.h"

#include "gpu.h"

namespace hetero {
namespace {

template <class Function> Function entry(const char *name, unsigned version = 12000) {
  void *p = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion(name, &p, version, cudaEnableDefault, &found), name);
  if (found != cudaDriverEntryPointSuccess || !p)
    throw std::runtime_error(std::string("the driver has no function ") + name);
  return reinterpret_cast<Function>(p);
}

void check_driver(CUresult result, const char *what) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(what) + ": the driver returned error " + std::to_string(result));
}

} // namespace

void stream_write(cudaStream_t stream, uint32_t *word, uint32_t value) {
  static const auto write = entry<decltype(&cuStreamWriteValue32)>("cuStreamWriteValue32");
  check_driver(write(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
               "record an event");
}

namespace {

int attribute(CUdevice_attribute what, int index) {
  static const auto ask = entry<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  int value = 0;
  check_driver(ask(&value, what, index), "query an attribute of a GPU"); // a device's handle equals its index
  return value;
}

} // namespace

bool prohibited(int index) { return attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, index) == CU_COMPUTEMODE_PROHIBITED; }

cudaDeviceProp driver_facts(int index) {
  static const auto name = entry<decltype(&cuDeviceGetName)>("cuDeviceGetName");
  static const auto memory = entry<decltype(&cuDeviceTotalMem)>("cuDeviceTotalMem");
  cudaDeviceProp facts{};
  check_driver(name(facts.name, sizeof facts.name, index), "query the name of a GPU");
  check_driver(memory(&facts.totalGlobalMem, index), "query the memory of a GPU");
  facts.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, index);
  facts.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, index);
  return facts;
}

void device_uuid(CUuuid *uuid, int index, bool second) {
  using Ask = CUresult (*)(CUuuid *, CUdevice);
  static const auto first = entry<Ask>("cuDeviceGetUuid", 9020), later = entry<Ask>("cuDeviceGetUuid", 11040);
  check_driver((second ? later : first)(uuid, index), "query the UUID of a GPU");
}

void stream_wait(cudaStream_t stream, uint32_t *word, uint32_t value) {
  static const auto wait = entry<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32");
  check_driver(wait(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_EQ), "wait for an event");
}

} // namespace hetero
