// batchnorm_table.h: the vectorised inner loops of batch normalisation, one set per instruction set.
//
// Each loop processes rows [from, to) of units [unit, unit + units) (rows.h) in one thread; batchnorm.cc divides the
// work and combines results. A piece has several units, at most kMostUnits, only if the rows of units are interleaved.
#pragma once

#include <stdint.h>

#include "rows.h"

namespace hetero {

constexpr int64_t kMostUnits = 16;

// The rows and units of a piece of work.
struct Piece {
  int64_t unit, units, from, to;
};

// Moments of the channels of a unit over some rows: the number of elements, their mean, and the sum of squared
// deviations from the mean. A channel may occupy several of the 16 lanes; these lanes then have equal values.
struct Moments {
  double mean[16], m2[16];
  double count;
};

// Sums of dz and of dz·(x - mean) over some rows, for each lane.
struct DiffSums {
  double dz[16], dz_x[16];
};

// Statistics and parameters of the channels (C). The pointers to gradients are null except in the backward pass.
struct NormVectors {
  const float *mean, *var, *gamma, *beta;
  const float *diff_gamma, *diff_beta;
};

// Values of the channel of each lane. Lanes of padding contain zero, so that they map zeros to zeros.
//
//   forward:   z = (x - mean)·scale + beta
//   backward:  diff_x = ((dz - mean_dz) - (x - mean)·slope)·scale
//
//   inverse = 1/sqrt(var + eps)
//   scale = gamma·inverse
//   slope = diff_gamma/n·inverse
//   mean_dz = diff_beta/n
struct NormLanes {
  float mean[16], scale[16], beta[16];
  float mean_dz[16], slope[16];
  float inverse[16];
};

enum ReluMask { kNoRelu, kRecomputed, kStored }; // how the backward pass determines whether z > 0

struct BatchNormTable {
  // Computes the lanes of a unit. n is the number of elements per channel, which only the backward pass uses.
  using Lanes = void (*)(const Rows &, int64_t unit, const NormVectors &, double eps, double n, NormLanes *);
  // Adds the elements of some rows to the moments of each unit.
  using Stats = void (*)(const Rows &, const Piece &, const void *x, Moments *);
  // Computes y = z [+ residual], followed by ReLU if requested. With a residual and ReLU, it also writes the mask words
  // of z > 0. lanes has one entry per unit.
  using Apply = void (*)(const Rows &, const Piece &, const NormLanes *lanes, const void *x, const void *residual,
                         void *y, uint16_t *mask);
  // Adds rows to the sums of each unit. On request, it stores dz = (diff_y [+ diff_y2])·(z > 0).
  using DiffReduce = void (*)(const Rows &, const Piece &, const NormLanes *lanes, const void *x, const void *diff_y,
                              const void *diff_y2, const uint16_t *mask, void *dz, DiffSums *);
  using DiffApply = void (*)(const Rows &, const Piece &, const NormLanes *lanes, const void *x, const void *dz,
                             void *diff_x);

  // The index bf16 is 0 for f32, and 1 for bf16. The index far is 1 if operands do not fit into the caches; the results
  // are then stored past the caches.
  Lanes lanes;
  Stats stats[2][2];                // [bf16][far]
  Apply apply[2][2][2][2];          // [bf16][relu][add][far]
  DiffReduce reduce[2][3][2][2][2]; // [bf16][ReluMask][two][dz stored][far]
  DiffApply diff_apply[2][2][2];    // [bf16][relu][far]
};

} // namespace hetero
