// rows.cc: the rows of each layout.
#include "rows.h"

#include "layout.h"

namespace hetero {

Rows rows_of(const ImageLayout &image) {
  const int64_t pixels = image.pixels();
  Rows r{};
  r.channels = image.c;
  r.tail_lanes = r.last_unit_lanes = 16;
  if (image.nhwc || pixels == 1) { // with one pixel, the channels are adjacent in every layout
    const int64_t c = image.padded_c();
    r.unit_channels = 16;
    r.units = (c + 15) / 16;
    r.last_unit_lanes = int(c - 16 * (r.units - 1));
    r.rows_per_sample = pixels;
    r.images = 1;
    r.rows = image.n * pixels;
    r.row_stride = c;
    r.unit_stride = 16;
    r.word_row = r.units;
    r.word_unit = 1;
  } else {
    const int64_t pixels_per_row = 16 / image.blk;
    r.unit_channels = image.blk;
    r.units = image.cblocks;
    r.rows = r.rows_per_sample = (pixels + pixels_per_row - 1) / pixels_per_row;
    r.tail_lanes = int((pixels - (r.rows - 1) * pixels_per_row) * image.blk);
    r.images = image.n;
    r.row_stride = 16;
    r.unit_stride = pixels * image.blk;
    r.image_stride = r.units * r.unit_stride;
    r.word_row = 1;
    r.word_unit = r.rows;
    r.word_image = r.units * r.rows;
  }
  r.words = r.images * r.rows * r.units;
  return r;
}

} // namespace hetero
