// parts.h: the part of a buffer that each rank owns in an operation. All libraries that add in the order of ranks use
// this header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../../native/hetero_collective.h"

namespace hetero {

constexpr size_t cache_line = 64; // bytes

// A rank's part of the buffer, in bytes.
struct Part {
  size_t offset, bytes;
};

inline size_t element_bytes(int dtype) {
  switch (dtype) { // values of tensor.DType
  case 2:
  case 5: return 8;
  case 3:
  case 4: return 2;
  case 8: return 1;
  default: return 4;
  }
}

// part_of returns the part that a rank owns. With counts, rank r owns counts[r] elements. In a broadcast the root owns
// the whole buffer. In an all-reduce the ranks own equal numbers of whole cache lines, except at the end of the buffer.
inline Part part_of(const hetero_signature &op, int rank, int size, const int64_t *counts) {
  const size_t element = element_bytes(op.dtype), all = static_cast<size_t>(op.elements) * element;
  if (counts) {
    int64_t before = 0;
    for (int r = 0; r < rank; r++) before += counts[r];
    return {static_cast<size_t>(before) * element, static_cast<size_t>(counts[rank]) * element};
  }
  if (op.kind != HETERO_ALL_REDUCE) return rank == op.root ? Part{0, all} : Part{all, 0};
  const size_t each = (all / static_cast<size_t>(size) + cache_line - 1) / cache_line * cache_line;
  const size_t from = std::min(all, each * static_cast<size_t>(rank));
  return {from, rank == size - 1 ? all - from : std::min(each, all - from)};
}

// hash_of returns the FNV-1a hash of the counts, or 0 if counts is null.
inline uint64_t hash_of(const int64_t *counts, int size) {
  uint64_t h = 14695981039346656037u;
  for (int r = 0; counts && r < size; r++)
    for (int byte = 0; byte < 8; byte++)
      h = (h ^ ((static_cast<uint64_t>(counts[r]) >> (8 * byte)) & 0xff)) * 1099511628211u;
  return counts ? h : 0;
}

inline bool same(const hetero_signature &a, const hetero_signature &b) {
  return a.number == b.number && a.kind == b.kind && a.dtype == b.dtype && a.reduce == b.reduce && a.root == b.root &&
         a.elements == b.elements && a.parts == b.parts;
}

} // namespace hetero
