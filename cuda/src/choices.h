// choices.h: finds the fastest of several ways to compute the same result. It times them once and caches the choice in
// memory and on disk.
//
// On disk (choice_file.h), there is one file per kind of GPU and driver. If several processes need the same choice at
// the same time, one process times the candidates, and the other processes use its choice. Ranks of one machine
// therefore use the same kernels. If the stored choices cannot be locked or written, the candidates are not timed,
// because two processes could make different choices. The first candidate that works is then used, with a note.
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
  std::string name; // without tabs and line ends; the same in every process
  // Called only if the candidate is timed. Throws if the candidate cannot be used, which removes it from the
  // comparison.
  std::function<Attempt()> prepare;
};

struct Comparison {
  std::string library;               // name and version of the library: "cuBLASLt 130100"
  std::string key;                   // op, shapes, types: everything else that times depend on
  int64_t bytes;                     // size of scratch, for the operands and the largest workspace of the candidates
  std::vector<Candidate> candidates; // at least one, best guess first
};

// Returns the index of the fastest candidate on the device in use. Throws Unsupported with the last reason if no
// candidate works. If scratch memory is short, returns the best guess and does not cache it.
size_t fastest(const Comparison &comparison);

// Returns the reasons why choices of this process are not timed, or "".
std::string choice_notes();

} // namespace hetero
