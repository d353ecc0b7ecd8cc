// activity.h: what the GPU did by its own clock, as CUPTI notes it: kernels, copies and fills, those of graphs one by one, and the host's calls of CUDA.
//
// CUPTI is opened when it is first asked for. It sends records in buffers, from a thread of its own, and knows one listener in a process.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"

namespace hetero {

struct Activities {
  const std::vector<ht_activity> *list; // until the next start, or free_activities
  int64_t lost;
};

// Throws Unavailable where there is no CUPTI or it is not allowed, Invalid where it is being done already.
void start_activity();
// Waits for the GPU; what it has done since. Throws Invalid where it was not started.
Activities stop_activity();
// Gives back the memory of what was handed out. Throws Invalid where it is being noted.
void free_activities();

// Changes with every start and stop. CUPTI tells of a graph's nodes for certain where it was listening when the graph was made, and what it adds to such a
// graph should be gone when it no longer does: a graph of another session is made anew.
uint64_t activity_session();

// While it lives, nodes that this thread adds to graphs belong to a step of a program.
class NodesOfStep {
public:
  NodesOfStep(const ht_program *program, int32_t step);
  ~NodesOfStep();
  NodesOfStep(const NodesOfStep &) = delete;
};

} // namespace hetero
