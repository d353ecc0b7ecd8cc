// activity.h: records of the GPU's activity from CUPTI, with times of the GPU's clock. They contain kernels, copies and
// fills, including each node of graphs, and the host's calls of CUDA.
//
// CUPTI is opened at the first use. It delivers records in buffers, on its own thread, and supports one subscriber per
// process.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"

namespace hetero {

struct Activities {
  const std::vector<ht_activity> *list; // valid until the next start, or free_activities
  int64_t lost;
};

// Throws Unavailable if CUPTI is missing or not permitted, Invalid if a recording is active.
void start_activity();
// Waits for the GPU and returns its activities since the start. Throws Invalid without a recording.
Activities stop_activity();
// Frees the memory of the returned activities. Throws Invalid if a recording is active.
void free_activities();

// Returns a number that changes with every start and stop. A program creates its graph again when this number has
// changed, for two reasons:
//
//   - CUPTI reliably reports only nodes of graphs that were created while it was recording.
//   - CUPTI adds instrumentation to such graphs, which must not stay in use after the recording.
uint64_t activity_session();

// While a NodesOfStep object exists, nodes that this thread adds to graphs belong to a step of a program.
class NodesOfStep {
public:
  NodesOfStep(const ht_program *program, int32_t step);
  ~NodesOfStep();
  NodesOfStep(const NodesOfStep &) = delete;
};

} // namespace hetero
