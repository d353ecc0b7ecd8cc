// images.h: checks and layouts of image specs for this device's kernel factories, in addition to operands.h.
#pragma once

#include "operands.h"

namespace hetero {

// Returns whether the spec is bf16. Throws Unsupported unless it is f32 or bf16.
bool is_bf16(const ht_spec &spec);

// Sets the layout of the images at these positions to plain, nhwc, nChw8c or nChw16c, and returns it. The layout is the
// first of these that exists:
//
//   - the layout for which the opaque input (mask, argmax) at position made_for was made, which its spec contains;
//     made_for < 0 means that there is no such input
//   - the layout to which an output is bound (operands.h)
//   - the layout of the first input that has one of the four layouts
//   - the layout that suits the instruction set (preferred_image_layout)
uint32_t choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                             int made_for = -1);

// Sets the padding of a blocked image to zero.
void clear_padding(const ht_spec &image, void *data);

// Returns whether a launch that accesses this many bytes is large enough for several threads.
inline bool worth_threads(int64_t bytes) { return bytes > 32 << 10; }

} // namespace hetero
