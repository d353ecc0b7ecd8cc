// layout.h: the layout numbers of this device, and the arrangement of images in each layout.
//
// A private layout number is HT_LAYOUT_FIRST_PRIVATE + a oneDNN format tag. A format therefore has the same number for
// every batch size and element type. The number, dims and type together determine a memory descriptor.
//
// Weights of grouped convolutions are 4-d (O, I/G, KH, KW) in the engine, and 5-d (G, O/G, I/G, KH, KW) in oneDNN.
// Their layout numbers contain G.
//
// Some formats have no tag. A registry contains them, and their numbers have the bit kRegistered.
//
//   bits 0..11   HT_LAYOUT_FIRST_PRIVATE + format tag
//   bits 12..27  G, 0 for anything that is not a grouped weight
//   bit 31       kRegistered: the other bits are an index
//
// Kernels other than convolutions, linear layers and reorders support four layouts of images: plain (NCHW), nhwc,
// nChw8c and nChw16c. The padding of channels in the blocked layouts is always zero, because each kernel that writes a
// tensor also writes its padding.
#pragma once

#include <cstdint>
#include <string>

#include "specs.h"

#if HT_HAVE_ONEDNN
#include "oneapi/dnnl/dnnl_types.h"
#endif

namespace hetero {

#if HT_HAVE_ONEDNN
constexpr uint32_t kNhwc = HT_LAYOUT_FIRST_PRIVATE + dnnl_nhwc;
constexpr uint32_t kNChw8c = HT_LAYOUT_FIRST_PRIVATE + dnnl_nChw8c;
constexpr uint32_t kNChw16c = HT_LAYOUT_FIRST_PRIVATE + dnnl_nChw16c;
#else
constexpr uint32_t kNhwc = HT_LAYOUT_FIRST_PRIVATE + 1;
constexpr uint32_t kNChw8c = HT_LAYOUT_FIRST_PRIVATE + 2;
constexpr uint32_t kNChw16c = HT_LAYOUT_FIRST_PRIVATE + 3;
#endif
constexpr uint32_t kRegistered = 1u << 31;

// Arrangement of the elements of images (N, C, H, W):
//
//     index(n, c, pixel) = ((n*cblocks + c/blk)*h*w + pixel)*blk + c%blk,  pixel = y*w + x
//
//     layout    blk   cblocks
//     plain     1     C
//     nhwc      C     1
//     nChw8c    8     ceil(C/8)
//     nChw16c   16    ceil(C/16)
struct ImageLayout {
  int64_t n, c, h, w;
  int64_t blk, cblocks;
  bool nhwc;

  int64_t pixels() const { return h * w; }
  int64_t padded_c() const { return blk * cblocks; }
  int64_t elements() const { return n * padded_c() * h * w; } // number of elements in memory, including padding
  int64_t index(int64_t in, int64_t ic, int64_t pixel) const {
    return ((in * cblocks + ic / blk) * h * w + pixel) * blk + ic % blk;
  }
};

// Sets *out for a 4-d spec in one of the four layouts. Returns false for any other spec, including HT_LAYOUT_ANY.
bool image_layout(const ht_spec &spec, ImageLayout *out);

// Returns the layout of images that suits the vector length in use: nChw16c, nChw8c, or plain if there are no vectors.
uint32_t preferred_image_layout();

// Rounds n up to a multiple of `to`.
inline int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

} // namespace hetero
