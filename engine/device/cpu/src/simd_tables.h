// simd_tables.h: the parts of SimdTable for the instruction set of the including file.
#pragma once

#include "batchnorm_simd.h"
#include "dropout_simd.h"
#include "elementwise_simd.h"
#include "loss_simd.h"
#include "optim_simd.h"
#include "pool_simd.h"
#include "simd_table.h"

namespace hetero {
namespace {

constexpr SimdTable simd_table() {
  return {batch_norm_table(), elementwise_table(), optim_table(), loss_table(), dropout_table(), pool_table()};
}

} // namespace
} // namespace hetero
