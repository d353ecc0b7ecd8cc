// presence.cc: queries to the driver that need no context, and the query of free memory, which needs a context.
#include "presence.h"

#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "gpu.h"
#include "memops.h"
#include "status.h"

namespace hetero {
namespace {

std::string version_text(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

std::string capability_text(int arch) { return std::to_string(arch / 10) + "." + std::to_string(arch % 10); }

// "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
void write_uuid(char *text, size_t size, const char *kind, const CUuuid &uuid) {
  const auto *b = reinterpret_cast<const unsigned char *>(uuid.bytes);
  int n = std::snprintf(text, size, "%s", kind);
  for (int i = 0; i < 16; i++)
    n += std::snprintf(text + n, size - size_t(n), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
}

} // namespace

int visible_gpus() {
  int driver = 0, runtime = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) throw Absent("cuda: no driver");
  if (driver / 1000 < runtime / 1000)
    throw Unavailable("the driver supports CUDA " + version_text(driver) + ", this program was built with CUDA " +
                      version_text(runtime) + ": install a newer driver, or build with a CUDA " +
                      std::to_string(driver / 1000) + " toolkit");
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess && found != cudaErrorNoDevice) {
    cudaGetLastError();
    throw Unavailable(std::string("the driver does not start: ") + cudaGetErrorName(found) + ": " +
                      cudaGetErrorString(found));
  }
  cudaGetLastError();
  if (found != cudaSuccess || count == 0) throw Absent("cuda: no GPU: the driver shows none");
  return count;
}

void want_gpu(int index) {
  const int count = visible_gpus();
  if (index < 0 || index >= count)
    throw Unavailable("got index " + std::to_string(index) + ", want one of the " + std::to_string(count) +
                      " GPUs that the driver shows");
}

void want_architecture(int index, const cudaDeviceProp &facts) {
  const int arch = facts.major * 10 + facts.minor;
  if (arch < HETERO_CUDA_LOWEST_ARCH)
    throw Unavailable("GPU " + std::to_string(index) + " (" + facts.name + ") has compute capability " +
                      capability_text(arch) + ", want at least " + capability_text(HETERO_CUDA_LOWEST_ARCH) +
                      ", the lowest that this program was built for (docs/gpu.md explains how to build for others)");
}

ht_identity identify(int index) {
  ht_identity id{};
  // The first version of the query identifies the whole card. The second version identifies the MIG slice that this
  // process uses.
  CUuuid card{}, slice{};
  device_uuid(&card, index, false);
  device_uuid(&slice, index, true);
  write_uuid(id.uuid, sizeof id.uuid, std::memcmp(&card, &slice, sizeof card) == 0 ? "GPU-" : "MIG-", slice);
  check(cudaDeviceGetPCIBusId(id.bus_id, sizeof id.bus_id, index), "query the PCI bus id");
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "query the free memory");
  id.free_bytes = static_cast<int64_t>(free);
  return id;
}

} // namespace hetero
