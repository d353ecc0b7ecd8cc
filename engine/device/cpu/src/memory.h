// memory.h: the device's memory.
#pragma once

#include <cstdint>

namespace hetero {

// Blocks of 1 MiB or more start at a multiple of 2 MiB and request huge pages; smaller ones are aligned to 64 bytes.
// The content is undefined. Returns nullptr if memory is exhausted.
void *allocate(int64_t bytes);
void release(void *p, int64_t bytes); // bytes as passed to allocate

} // namespace hetero
