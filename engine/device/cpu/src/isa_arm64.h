// isa_arm64.h: instructions of arm64 that not every CPU has. Every arm64 CPU has NEON.
#pragma once

namespace hetero {

// Returns whether bfmmla and bfdot are available, and HETERO_CPU_ISA is not `generic`. Determined once.
bool has_bfmmla();

} // namespace hetero
