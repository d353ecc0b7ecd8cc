// images.h: checks and layouts of image specs for this device's factories, in addition to operands.h.
#pragma once

#include "operands.h"

namespace hetero {

// Whether the spec is bf16. Throws Unsupported unless it is f32 or bf16.
bool is_bf16(const ht_spec &spec);

// Gives images at these positions one of the layouts plain, nhwc, nChw8c and nChw16c, and returns it. Opaque inputs
// (masks, argmax) belong to the layout that they were made for, which their spec carries: one at position made_for >= 0
// decides first. Then a bound output decides, then the first input with one of the four layouts, else the instruction
// set.
uint32_t choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                             int made_for = -1);

// Sets the padding of a blocked image to zero.
void clear_padding(const ht_spec &image, void *data);

// Whether a launch that touches this many bytes justifies several threads.
inline bool worth_threads(int64_t bytes) { return bytes > 32 << 10; }

} // namespace hetero
