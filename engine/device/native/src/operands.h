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

// An output is bound to a layout if its spec in the request contains this layout instead of HT_LAYOUT_ANY.
//
// Returns the layout to which the outputs at these positions are bound, or HT_LAYOUT_ANY if none is bound. Throws
// Unsupported if they are bound to several layouts.
uint32_t bound_layout(const Request &request, const Positions &out);

// Like bound_layout above, for an op with an opaque input (mask, argmax) at position made_for; made_for < 0 means that
// there is none. An opaque input was made for one layout, which its spec contains, and the outputs must have this
// layout. Returns this layout. Throws Unsupported if an output is bound to another layout.
uint32_t bound_layout(const Request &request, const Positions &out, int made_for);

void give_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out, uint32_t layout);

// Chooses one layout for all operands of an elementwise op on tensors of one shape. Any layout would work. The layout
// is the first of these that exists:
//
//   - the layout to which an output is bound
//   - the layout of the first input that has a definite layout
//   - plain
uint32_t choose_shared_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out);

} // namespace hetero
