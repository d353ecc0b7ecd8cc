// memops.h: the driver's functions that the run-time library has no equal of, looked up when they are first used: streams that write and
// wait for a word of page-locked memory, and what tells GPUs apart.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace hetero {

void stream_write(cudaStream_t stream, uint32_t *word, uint32_t value);
void stream_wait(cudaStream_t stream, uint32_t *word, uint32_t value); // until the word has that value

// What the driver tells of a GPU without a context: name, capability, memory in all. The rest is 0.
cudaDeviceProp driver_facts(int index);
bool prohibited(int index); // by its compute mode: no program may use it

// The first version of the question, or the second, which tells MIG slices apart.
void device_uuid(CUuuid *uuid, int index, bool second);

} // namespace hetero
