// choices.h: which of several ways to do one thing is fastest: timed once, then remembered, in memory and on disk.
//
// On disk: <user's cache folder>/hetero-train/choices, one file for each kind of GPU with its driver, safe to delete. Processes that
// want one thing timed at once do not: the first does it, the others take its choice, so ranks of one machine compute alike.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hetero {

// Enqueues the work on the stream; scratch holds operands and workspace.
using Attempt = std::function<void(void *scratch, cudaStream_t)>;

struct Candidate {
  std::string name; // without tabs and line ends; the same way has the same name in every process
  // Called only if the candidate is timed. Throws where it will not do: it is out of the race then.
  std::function<Attempt()> prepare;
};

struct Contest {
  std::string library;               // with its version: "cuBLASLt 130100"
  std::string key;                   // op, shapes, types: all that the times depend on besides the library and the GPU
  int64_t bytes;                     // of scratch, for operands and for the workspace of any candidate
  std::vector<Candidate> candidates; // at least one, best guess first
};

// The index of the fastest candidate on the device in use. Throws Unsupported with the last reason where none of them works.
// Where scratch memory is short it is the best guess, which is not remembered.
size_t fastest(const Contest &contest);

} // namespace hetero
