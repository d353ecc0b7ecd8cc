// memops.h: streams that write and wait for a word of page-locked memory: the driver's functions, looked up when they are first used.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace hetero {

void stream_write(cudaStream_t stream, uint32_t *word, uint32_t value);
void stream_wait(cudaStream_t stream, uint32_t *word, uint32_t value); // until the word has that value

} // namespace hetero
