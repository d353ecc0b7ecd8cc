// Checks that a CUDA toolkit has the headers that cuda/src and gorgonia.org/cu use, with the adapted cuda.h of
// cuda_compat.
#include <cuda.h>
#include <cuda_runtime.h>

#include "cublaslt.h"
#include "dnn.h"
#if HETERO_CUPTI
#include "cupti_library.h"
#include "records.h"
#endif

int main() { return 0; }
