// rows.h: an image tensor as rows of sixteen elements, the same for every layout.
//
// A unit is the set of channels in one vector. A row is 16 elements of a unit:
//
//     layout             channels of a unit   pixels of a row
//     nChw16c, nhwc      16                   1
//     nChw8c             8                    2
//     plain              1                    16
//
// Lane i of a row belongs to channel unit*unit_channels + i%unit_channels.
//
// The rows of a unit are numbered through all samples: sample n has rows [n*rows_per_sample, (n+1)*rows_per_sample).
// Statistics over consecutive samples are therefore sums over a range of rows. The same code for rows works with all
// layouts.
#pragma once

#include <stdint.h>

namespace hetero {

struct ImageLayout;

struct Rows {
  int64_t units;
  int64_t unit_channels;   // 16, 8 or 1
  int64_t rows_per_sample; // rows of a unit in one sample; the last row may be short
  // Number of images, and rows of a unit per image. An image is one sample, or all samples (nhwc, or one pixel).
  int64_t images, rows;
  int64_t row_stride, image_stride, unit_stride; // strides in elements: from row to row, image to image, unit to unit
  int tail_lanes;                                // number of lanes of an image's last row; 16 if it is full
  int last_unit_lanes;                           // number of lanes of the last unit's rows; 16 if they are full
  int64_t word_row, word_image, word_unit;       // the same strides for an array of one 16-bit word per row
  // Number of 16-bit words, one for each row of all units.
  int64_t words;
  int64_t channels; // C, without padding
};

Rows rows_of(const ImageLayout &image);

namespace { // internal linkage: see simd.h

// Returns the number of elements of each channel in rows [from, to).
inline int64_t elements_in(const Rows &r, int64_t from, int64_t to) {
  const int64_t tails = r.tail_lanes < 16 ? to / r.rows - from / r.rows : 0;
  return ((to - from) * 16 - tails * (16 - r.tail_lanes)) / r.unit_channels;
}

// Returns whether rows of neighbouring units are adjacent. Such units are processed together, row by row.
inline bool interleaved(const Rows &r) { return r.units > 1 && r.row_stride != 16; }

} // namespace
} // namespace hetero
