// check.h: CUDA's answers as errors.
#pragma once

#include <cuda_runtime.h>

namespace hetero {

// Throws std::runtime_error, OutOfMemory where memory was short, unless a call of the CUDA run-time library went well.
void check(cudaError_t error, const char *what);

} // namespace hetero
