// cublaslt.h: cuBLASLt's functions, resolved at the first use of the library.
#pragma once

#include <cublasLt.h>

#include <string>

namespace hetero {

struct CublasLt {
  std::string version; // "cuBLASLt 130100", part of the key of cached choices
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

// Returns the library of this process. Throws Unavailable if there is no suitable library; the next call searches
// again.
const CublasLt &cublaslt();

// The library's handle for the device in use, created once.
cublasLtHandle_t cublaslt_handle();

// Throws OutOfMemory if memory is short, and std::runtime_error for all other errors.
void check(cublasStatus_t status, const char *what);

} // namespace hetero
