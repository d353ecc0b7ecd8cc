// presence.h: which GPUs exist, why there is none, and their identities.
#pragma once

#include <cuda_runtime.h>

#include "hetero_device.h"

namespace hetero {

int visible_gpus(); // number of GPUs; throws Absent if there is none, and Unavailable if a fault prevents their use
void want_gpu(int index); // throws Unavailable unless there is such a GPU
void want_architecture(int index,
                       const cudaDeviceProp &facts); // throws Unavailable for architectures that this build lacks
ht_identity identify(int index);                     // identity of the GPU that the calling thread uses

} // namespace hetero
