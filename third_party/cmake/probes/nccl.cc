// Checks that nccl.h declares the functions of NCCL that nccl/src uses. The program opens NCCL itself at run time.
#include "functions.h"

int main() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return config.blocking + config.maxCTAs + static_cast<int>(ncclInProgress) + static_cast<int>(ncclRemoteError) +
         static_cast<int>(ncclBfloat16);
}
