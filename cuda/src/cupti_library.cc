// cupti_library.cc
#if HETERO_CUPTI
#include "cupti_library.h"

#include <cuda_runtime.h>

#include "check.h"
#include "status.h"

namespace hetero {
namespace {

std::string library_file() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "query the version of CUDA");
  return "libcupti" HETERO_CUDA_LIBRARIES ".so." + std::to_string(version / 1000);
}

// Returns the remedy for a CUPTI error.
const char *advice(CUptiResult result) {
  switch (result) {
  case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    return ": this machine lets only administrators profile: load the driver with "
           "NVreg_RestrictProfilingToAdminUsers=0, "
           "or give the process CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN)";
  case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    return ": another profiler is active (nsys, ncu, compute-sanitizer): run without it";
  case CUPTI_ERROR_NOT_INITIALIZED: return ": CUPTI failed to start: it may be newer than the driver";
  case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED: return ": this virtual GPU does not permit profiling";
  default: return "";
  }
}

} // namespace

Cupti::Cupti() : file(library_file()), library({"CUPTI", file.c_str(), "nvidia-cuda-cupti", true}) {}

const Cupti &Cupti::get() {
  static const Cupti *const cupti = new Cupti;
  return *cupti;
}

void check(CUptiResult result, const char *what) {
  if (result == CUPTI_SUCCESS) return;
  const char *text = nullptr;
  Cupti::get().cuptiGetResultString(result, &text);
  throw Unavailable(std::string("cuda: CUPTI: ") + what + ": " + (text ? text : std::to_string(result)) +
                    advice(result));
}

} // namespace hetero
#endif
