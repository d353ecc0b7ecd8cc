// simd_tables.h: the parts of SimdTable for the instruction set of the including file.
#pragma once

#include "batchnorm_simd.h"
#include "simd_table.h"

namespace hetero {
namespace {

constexpr SimdTable simd_table() { return {batch_norm_table()}; }

} // namespace
} // namespace hetero
