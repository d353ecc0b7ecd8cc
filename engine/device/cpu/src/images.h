// images.h: checks and layouts of image specs for this device's kernel factories, in addition to operands.h.
#pragma once

#include "operands.h"

namespace hetero {

// Returns whether the spec is bf16. Throws Unsupported unless it is f32 or bf16.
bool is_bf16(const ht_spec &spec);

// Sets the layout of the images at these positions to plain, nhwc, nChw8c or nChw16c, and returns it. The first of
// these rules that applies determines the layout:
//   - the layout for which the opaque input (mask, argmax) at position made_for >= 0 was made; its spec contains this
//     layout
//   - the layout of a bound output
//   - the layout of the first input with one of the four layouts
//   - the layout that suits the instruction set
uint32_t choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                             int made_for = -1);

// Sets the padding of a blocked image to zero.
void clear_padding(const ht_spec &image, void *data);

// Returns whether a launch that accesses this many bytes is large enough for several threads.
inline bool worth_threads(int64_t bytes) { return bytes > 32 << 10; }

} // namespace hetero
