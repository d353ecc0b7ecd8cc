// rows.h: an image tensor as rows of sixteen elements, the same for every layout.
//
// A unit is what one vector of channels serves: 16 channels (nChw16c, nhwc), 8 (nChw8c) or 1 (plain). A row is 16
// elements of a unit: one pixel, 2 pixels or 16 pixels; lane i belongs to channel unit*unit_channels + i%unit_channels.
// The rows of a unit are numbered through all samples: sample n has rows [n*rows_per_sample, (n+1)*rows_per_sample).
// So statistics over any samples are sums over a range of rows, and the code below the row does not know layouts.
#pragma once

#include <stdint.h>

namespace hetero {

struct ImageLayout;

struct Rows {
  int64_t units;
  int64_t unit_channels;   // 16, 8 or 1
  int64_t rows_per_sample; // the last row of a sample may be short:
  int64_t images, rows;    // rows lie evenly within an image: one a sample, or one in all where samples follow evenly
  int64_t row_stride, image_stride, unit_stride; // elements
  int tail_lanes;                                // lanes of an image's last row, 16 if it is full
  int last_unit_lanes;                           // lanes of the last unit's rows, 16 if they are full
  int64_t word_row, word_image, word_unit;       // the same walk through an array of one 16-bit word a row
  int64_t words;
  int64_t channels; // C, without padding
};

Rows rows_of(const ImageLayout &image);

namespace { // internal linkage: see simd.h

// Elements of each channel in rows [from, to).
inline int64_t elements_in(const Rows &r, int64_t from, int64_t to) {
  const int64_t tails = r.tail_lanes < 16 ? to / r.rows - from / r.rows : 0;
  return ((to - from) * 16 - tails * (16 - r.tail_lanes)) / r.unit_channels;
}

// Whether rows of neighbouring units lie side by side: then units are walked together, row by row.
inline bool interleaved(const Rows &r) { return r.units > 1 && r.row_stride != 16; }

} // namespace
} // namespace hetero
