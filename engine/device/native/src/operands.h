// operands.h: checks of specs, and choices of layouts, for the kernel factories of any device.
#pragma once

#include <vector>

#include "kernel.h"

namespace hetero {

using Positions = std::vector<int>;

// Throws Invalid unless the request has these numbers of operands.
void want_operands(const Request &request, size_t inputs, size_t outputs);

void want_f32(const ht_spec &spec); // throws Unsupported

// Initialises a kernel's specs: every operand is plain with its size set; opaque operands stay unchanged.
void take_plain(Kernel &kernel, const Request &request);

// Returns the layout to which the outputs at these positions are bound, or HT_LAYOUT_ANY if none is bound. Throws
// Unsupported if they are bound to several layouts.
uint32_t bound_layout(const Request &request, const Positions &out);

// The same, but with an opaque input (mask, argmax) at position made_for; if made_for < 0, there is no such input. The
// result is the layout for which the opaque input was made, which the spec of the input contains. Throws Unsupported if
// an output is bound to another layout.
uint32_t bound_layout(const Request &request, const Positions &out, int made_for);

void give_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out, uint32_t layout);

// Chooses one layout for elementwise work on tensors of one shape. Such work is possible in any layout. The layout is
// that of a bound output, else that of the first input with a definite layout, else plain.
uint32_t choose_shared_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out);

} // namespace hetero
