// memory.h: the device's memory.
#pragma once

#include <cstdint>

namespace hetero {

// Returns device memory with undefined content, or nullptr if memory is exhausted. Blocks of 1 MiB or more start at a
// multiple of 2 MiB and request huge pages. Smaller blocks are aligned to 64 bytes.
void *allocate(int64_t bytes);
void release(void *p, int64_t bytes); // bytes as passed to allocate

} // namespace hetero
