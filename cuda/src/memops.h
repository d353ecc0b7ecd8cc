// memops.h: functions of the driver that the run-time library lacks, resolved at the first use. They let streams write
// a word of page-locked memory and wait for it, and they identify GPUs.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace hetero {

void stream_write(cudaStream_t stream, uint32_t *word, uint32_t value);
void stream_wait(cudaStream_t stream, uint32_t *word, uint32_t value); // waits until the word has that value

// Properties of a GPU that the driver returns without a context: name, capability, total memory. The rest is 0.
cudaDeviceProp driver_facts(int index);
bool prohibited(int index); // whether the compute mode of the GPU forbids its use by any program

// Returns the UUID of a GPU. If `second` is true, it uses the second version of the query, which distinguishes MIG
// slices.
void device_uuid(CUuuid *uuid, int index, bool second);

} // namespace hetero
