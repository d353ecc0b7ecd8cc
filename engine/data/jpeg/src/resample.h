// resample.h declares the loops of resample (hetero_jpeg.h) for several instruction sets. All of them give bit-equal
// results.
#pragma once

#include "hetero_jpeg.h"

namespace hetero {

void resample(uint8_t *dst, const uint8_t *src, size_t src_bytes, int32_t src_width, const hetero_taps *x,
              const hetero_taps *y, uint8_t *rows);

constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

struct ResampleLoops {
  // Resamples num_rows rows to dst (num_rows, x.count, 3). A row begins row_bytes after the previous one. `end` is the
  // end of the memory that contains the rows.
  void (*horizontal)(uint8_t *dst, const uint8_t *src, size_t row_bytes, int32_t num_rows, const uint8_t *end,
                     const hetero_taps &x);
  // Writes the weighted sum of num rows to dst. Each row has `bytes` bytes.
  void (*vertical)(uint8_t *dst, const uint8_t *rows, int32_t bytes, int32_t num, const int32_t *weight);
};

extern const ResampleLoops resample_generic, resample_avx2;

} // namespace hetero
