// tile_conv.h: convolutions in bf16 on the tile registers of AMX (tile_product.h).
//
// The rows of the products are samples: a row of a left tile is an input pixel of one sample. Each output pixel has a
// list of its taps, so padding takes no time, and every window is supported. In a 1x1 convolution with stride 1, all
// pixels of all samples are rows.
//
//   forward, diff_src   out(n, o) = sum over taps and i of in(n, pixel of the tap, i) · w(tap, i, o), by output pixel
//   diff_weights        dw(tap, c, o) = sum over (src pixel, dst pixel) of the tap and n of src(n, c) · diff_dst(n, o)
//
// Images have layout nhwc, so that a row of a tile is contiguous. The weight gradient packs both images, because its
// sum is over the samples. The number of channels is a multiple of 32, and groups is 1.
#pragma once

#include <memory>

#include "kernel.h"

namespace hetero {

// Returns the kernel for a request of HT_CONV2D, _DIFF_SRC or _DIFF_WEIGHTS, or nullptr if these kernels do not support
// it. The caller must check the shapes first.
std::unique_ptr<Kernel> make_tile_conv(const Request &r);

} // namespace hetero
