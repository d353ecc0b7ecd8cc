// check.cc
#include "check.h"

#include <string>

#include "status.h"

namespace hetero {

void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  const std::string text = std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw std::runtime_error(text);
}

} // namespace hetero
