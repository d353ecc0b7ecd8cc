# The NVIDIA parts. Neither has sources in this version, and the lines say just that.
if(NOT HETERO_CUDA STREQUAL "auto" AND HETERO_CUDA)
  message(FATAL_ERROR "CUDA=on, but this version has no CUDA sources; run: make")
endif()
string(APPEND hetero_parts "cuda: off (this version has no CUDA sources)\n")
string(APPEND hetero_parts "nccl: off (this version has no NCCL sources)\n")
