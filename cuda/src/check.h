// check.h: converts results of CUDA to exceptions.
#pragma once

#include <cuda_runtime.h>

namespace hetero {

// Throws OutOfMemory if memory is short, and std::runtime_error for all other errors.
void check(cudaError_t error, const char *what);

} // namespace hetero
