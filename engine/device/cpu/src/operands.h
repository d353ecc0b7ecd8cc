// operands.h: what factories ask of the specs they get, and how they choose layouts.
#pragma once

#include <vector>

#include "kernel.h"

namespace hetero {

using Positions = std::vector<int>;

// Throws Invalid unless the request has so many operands.
void want_operands(const Request &request, size_t inputs, size_t outputs);

// Throws Unsupported unless the spec is f32 or bf16 (and then says which).
bool is_bf16(const ht_spec &spec);
void want_f32(const ht_spec &spec);

// Starts a kernel's specs: every operand plain, sizes filled, opaque ones as they came.
void take_plain(Kernel &kernel, const Request &request);

// Gives images at these positions one layout among plain, nhwc, nChw8c and nChw16c, and says which. A bound output
// decides, else the first input that lies in one of the four, else what suits the instruction set. Opaque inputs
// (masks, argmax) belong to the layout they were made for, which their spec carries: one at position made_for >= 0
// decides first.
uint32_t choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                             int made_for = -1);

// As above for elementwise work on tensors of one shape: any layout will do if all share it.
uint32_t choose_shared_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out);

// Sets the padding of a blocked image to zero again.
void clear_padding(const ht_spec &image, void *data);

// Whether a launch that touches so many bytes is worth the threads.
inline bool worth_threads(int64_t bytes) { return bytes > 32 << 10; }

} // namespace hetero
