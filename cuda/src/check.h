// check.h: converts results of CUDA to exceptions.
#pragma once

#include <cuda_runtime.h>

namespace hetero {

// Throws std::runtime_error, or OutOfMemory, unless a call of the CUDA run-time library succeeded.
void check(cudaError_t error, const char *what);

} // namespace hetero
