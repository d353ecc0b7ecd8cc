// operands.h: what factories ask of the specs they get, and how they choose layouts, whatever the device.
#pragma once

#include <vector>

#include "kernel.h"

namespace hetero {

using Positions = std::vector<int>;

// Throws Invalid unless the request has so many operands.
void want_operands(const Request &request, size_t inputs, size_t outputs);

void want_f32(const ht_spec &spec); // throws Unsupported

// Starts a kernel's specs: every operand plain, sizes filled, opaque ones as they came.
void take_plain(Kernel &kernel, const Request &request);

// The layout that the outputs at these positions bind, HT_LAYOUT_ANY if none does. Throws Unsupported where they bind several.
uint32_t bound_layout(const Request &request, const Positions &out);

// As bound_layout, for what must lie as an opaque input (mask, argmax) was made for, which its spec carries; made_for < 0: there is none.
uint32_t bound_layout(const Request &request, const Positions &out, int made_for);

void give_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out, uint32_t layout);

// Gives elementwise work on tensors of one shape a layout: any will do if all share it. A bound output decides, then the first input
// that lies somewhere, else it is plain.
uint32_t choose_shared_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out);

} // namespace hetero
