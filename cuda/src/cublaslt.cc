// cublaslt.cc
#include "cublaslt.h"

#include <map>
#include <mutex>

#include "gpu.h"
#include "libraries.h"
#include "status.h"

#define HETERO_TEXT_OF(x) #x
#define HETERO_TEXT(x) HETERO_TEXT_OF(x)

namespace hetero {
namespace {

CublasLt open() {
  const Library lib(
      {"cuBLASLt", "libcublasLt" HETERO_CUDA_LIBRARIES ".so." HETERO_TEXT(CUBLAS_VER_MAJOR), "nvidia-cublas", true});
  const size_t version = lib.function<decltype(&cublasLtGetVersion)>("cublasLtGetVersion")();
  lib.want_major(static_cast<int64_t>(version / 10000), CUBLAS_VER_MAJOR);
  CublasLt c;
  c.version = "cuBLASLt " + std::to_string(version);
  auto find = [&lib](auto &function, const char *name) {
    function = lib.function<std::remove_reference_t<decltype(function)>>(name);
  };
  find(c.create, "cublasLtCreate");
  find(c.matmul, "cublasLtMatmul");
  find(c.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(c.config, "cublasLtMatmulAlgoConfigGetAttribute");
  find(c.init_desc, "cublasLtMatmulDescInit_internal");
  find(c.set_desc, "cublasLtMatmulDescSetAttribute");
  find(c.init_layout, "cublasLtMatrixLayoutInit_internal");
  find(c.init_preference, "cublasLtMatmulPreferenceInit_internal");
  find(c.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  return c;
}

const char *text_of(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_NOT_INITIALIZED: return "not initialised";
  case CUBLAS_STATUS_ALLOC_FAILED: return "out of memory";
  case CUBLAS_STATUS_INVALID_VALUE: return "invalid value";
  case CUBLAS_STATUS_ARCH_MISMATCH: return "not for this GPU";
  case CUBLAS_STATUS_EXECUTION_FAILED: return "execution failed";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
  default: return "an internal error";
  }
}

} // namespace

const CublasLt &cublaslt() {
  static const CublasLt functions = open(); // after an exception, the next call opens it again
  return functions;
}

cublasLtHandle_t cublaslt_handle() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  check(cudaGetDevice(&device), "query the current device");
  const std::lock_guard<std::mutex> hold(mutex);
  auto [place, fresh] = handles.try_emplace(device);
  if (fresh || !place->second) check(cublaslt().create(&place->second), "open cuBLASLt on the device");
  return place->second;
}

void check(cublasStatus_t status, const char *what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text =
      std::string(what) + ": cuBLASLt returned status " + std::to_string(status) + ", " + text_of(status);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  throw std::runtime_error(text);
}

} // namespace hetero
