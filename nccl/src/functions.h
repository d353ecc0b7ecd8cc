// functions.h: NCCL's functions, looked up in the library that is opened at run time.
#pragma once

#include <nccl.h>

#include <string>

#include "hetero_nccl.h"
#include "libraries.h"

#ifndef HETERO_CUDA_LIBRARIES
#define HETERO_CUDA_LIBRARIES "" // tests open libraries with other names
#endif

namespace hetero {

struct Functions {
  Library library{{"NCCL", "libnccl" HETERO_CUDA_LIBRARIES ".so.2", "nvidia-nccl", false}};
#define HETERO_NCCL(name) decltype(&nccl##name) name = library.function<decltype(&nccl##name)>("nccl" #name)
  HETERO_NCCL(GetVersion);
  HETERO_NCCL(GetUniqueId);
  HETERO_NCCL(GetErrorString);
  HETERO_NCCL(GetLastError);
  HETERO_NCCL(CommInitRankConfig);
  HETERO_NCCL(CommGetAsyncError);
  HETERO_NCCL(CommFinalize);
  HETERO_NCCL(CommDestroy);
  HETERO_NCCL(CommAbort);
  HETERO_NCCL(AllReduce);
  HETERO_NCCL(Broadcast);
  HETERO_NCCL(Reduce);
  HETERO_NCCL(AllGather);
  HETERO_NCCL(ReduceScatter);
  HETERO_NCCL(GroupStart);
  HETERO_NCCL(GroupEnd);
#undef HETERO_NCCL
  int version = 0;
};

// Opens NCCL on the first call. NCCL stays open. If NCCL cannot be used, the call throws Unavailable, and the next call
// tries again.
const Functions &nccl();

} // namespace hetero
