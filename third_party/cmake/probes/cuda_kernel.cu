// Checks that nvcc accepts the host compiler: nvcc refuses compilers that are newer than the toolkit.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <string>

__global__ void probe(float *x) { x[threadIdx.x] = fmaf(x[0], 2.0f, __bfloat162float(__float2bfloat16(x[1]))); }
