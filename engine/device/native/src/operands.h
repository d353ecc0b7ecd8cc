// operands.h: checks of specs and choices of layouts for the factories of any device.
#pragma once

#include <vector>

#include "kernel.h"

namespace hetero {

using Positions = std::vector<int>;

// Throws Invalid unless the request has these numbers of operands.
void want_operands(const Request &request, size_t inputs, size_t outputs);

void want_f32(const ht_spec &spec); // throws Unsupported

// Initialises a kernel's specs: every operand plain, sizes set, opaque operands unchanged.
void take_plain(Kernel &kernel, const Request &request);

// The layout to which the outputs at these positions are bound, HT_LAYOUT_ANY without one. Throws Unsupported for
// several.
uint32_t bound_layout(const Request &request, const Positions &out);

// As bound_layout, but the result must be the layout for which an opaque input (mask, argmax) was made, which its spec
// carries; made_for < 0: no such input.
uint32_t bound_layout(const Request &request, const Positions &out, int made_for);

void give_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out, uint32_t layout);

// Chooses one layout for elementwise work on tensors of one shape: any common layout will do. A bound output decides,
// then the first input with a definite layout; otherwise it is plain.
uint32_t choose_shared_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out);

} // namespace hetero
