// cublaslt.h: cuBLASLt's functions, looked up when the library is first used.
#pragma once

#include <cublasLt.h>

#include <string>

namespace hetero {

struct CublasLt {
  std::string version; // "cuBLASLt 130100", as choices are remembered by
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) config;
  decltype(&cublasLtMatmulDescInit_internal) init_desc;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
};

// The library of this process. Throws Unavailable, each time anew, where there is none that serves.
const CublasLt &cublaslt();

// The library's handle of the device in use, made once.
cublasLtHandle_t cublaslt_handle();

// Throws std::runtime_error, OutOfMemory where memory was short, unless a call went well.
void check(cublasStatus_t status, const char *what);

} // namespace hetero
