// memory.h: the device's memory.
#pragma once

#include <cstdint>

namespace hetero {

// Blocks of 1 MiB or more start at a multiple of 2 MiB and ask for huge pages; smaller ones are aligned to 64 bytes.
// Fresh content is undefined. nullptr where there is no memory.
void *allocate(int64_t bytes);
void release(void *p, int64_t bytes); // bytes as given to allocate

} // namespace hetero
