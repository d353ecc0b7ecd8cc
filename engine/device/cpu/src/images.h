// images.h: what factories of this device ask of the specs they get besides operands.h, and where images lie.
#pragma once

#include "operands.h"

namespace hetero {

// Throws Unsupported unless the spec is f32 or bf16 (and then says which).
bool is_bf16(const ht_spec &spec);

// Gives images at these positions one layout among plain, nhwc, nChw8c and nChw16c, and says which. A bound output
// decides, else the first input that lies in one of the four, else what suits the instruction set. Opaque inputs
// (masks, argmax) belong to the layout they were made for, which their spec carries: one at position made_for >= 0
// decides first.
uint32_t choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                             int made_for = -1);

// Sets the padding of a blocked image to zero again.
void clear_padding(const ht_spec &image, void *data);

// Whether a launch that touches so many bytes is worth the threads.
inline bool worth_threads(int64_t bytes) { return bytes > 32 << 10; }

} // namespace hetero
