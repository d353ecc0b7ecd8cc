// tile_conv.h: convolutions in bf16 on the tile registers of AMX (tile_product.h).
//
// The rows of the products are samples: a row of a left tile is an input pixel of one sample. A tap is one element of
// the convolution kernel. Each output pixel has a list of its taps, so padding takes no time, and every window is
// supported. In a 1x1 convolution with stride 1, all pixels of all samples are rows.
//
//     forward, diff_src   out(n, o) = sum over taps of the output pixel and i of in(n, tap's pixel, i) · w(tap, i, o)
//     diff_weights        dw(tap, c, o) = sum over pixels of the tap and n of src(n, c) · diff_dst(n, o)
//
// n is a sample. i and c are input channels, and o is an output channel. A pixel of a tap is a pair of pixels of src
// and dst.
//
// Images have layout nhwc, so that a row of a tile is contiguous. diff_weights packs both images, because it sums over
// the samples. The number of channels is a multiple of 32, and groups is 1.
#pragma once

#include <memory>

#include "kernel.h"

namespace hetero {

// Returns the kernel for a request of HT_CONV2D, _DIFF_SRC or _DIFF_WEIGHTS, or nullptr if these kernels do not support
// it. The caller must check the shapes first.
std::unique_ptr<Kernel> make_tile_conv(const Request &r);

} // namespace hetero
