// presence.h: which GPUs there are, why there is none, and what tells one from the others.
#pragma once

#include <cuda_runtime.h>

#include "hetero_device.h"

namespace hetero {

int visible_gpus(); // throws Absent where there is none, Unavailable where one could be used if something were mended
void want_gpu(int index); // throws Unavailable unless there is such a GPU
void want_architecture(int index,
                       const cudaDeviceProp &facts); // throws Unavailable below the lowest that there is code for
ht_identity identify(int index);                     // of the GPU that the calling thread uses

} // namespace hetero
