// reduce_simd.h: the kernels, in a form that the compiler vectorises. Each instruction set includes this file once. All
// definitions are in an unnamed namespace (see CONTRIBUTING.md).
#pragma once

#include <stdint.h>
#include <string.h>

#include "reduce.h"

namespace hetero {
namespace {

// Elements per block. Each source is read once, and the sums of a block stay in the L1 cache.
constexpr size_t block = 1024;

// Plain describes an element type. Memory is the type in the buffer, and Value the type of the computation.
template <class T> struct Plain {
  using Memory = T;
  using Value = T;
  static constexpr bool plain = true;
  static Value load(Memory m) { return m; }
  static Memory store(Value v) { return v; }
};

struct BF16 {
  using Memory = uint16_t;
  using Value = float;
  static constexpr bool plain = false;
  static Value load(Memory m) {
    uint32_t bits = static_cast<uint32_t>(m) << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
  }
  // Rounds to nearest, ties to even; a NaN stays a quiet NaN. The CPU's own instruction cannot be used, because it
  // would flush denormal numbers.
  static Memory store(Value v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40;
    return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
};

// Sums of integers wrap, because their type here is unsigned.
struct Sum {
  template <class V> static V of(V acc, V v) { return static_cast<V>(acc + v); }
};
// Of two equal values, keeps the earlier one. If a value is NaN, the result is NaN.
struct Max {
  template <class V> static V of(V acc, V v) { return ((v > acc) | (v != v)) ? v : acc; }
};
struct Min {
  template <class V> static V of(V acc, V v) { return ((v < acc) | (v != v)) ? v : acc; }
};

// Reduces two sources directly, without an intermediate block in the L1 cache. dst may be a or b, but must not overlap
// them in any other way. The pragmas state that no iteration depends on another one.
template <class T, class F> void reduce_two(T *dst, T *also, const T *a, const T *b, size_t n) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (size_t i = 0; i < n; i++) dst[i] = also[i] = F::of(a[i], b[i]);
}

template <class E, class F> void reduce(void *dst, void *also, const void *const *src, int sources, size_t n) {
  using Memory = typename E::Memory;
  using Value = typename E::Value;
  if constexpr (E::plain) {
    if (sources == 2) {
      auto to = static_cast<Value *>(dst);
      reduce_two<Value, F>(to, also ? static_cast<Value *>(also) : to, static_cast<const Value *>(src[0]),
                           static_cast<const Value *>(src[1]), n);
      return;
    }
  }
  alignas(64) Value acc[block];
  alignas(64) Memory out[block];
  for (size_t start = 0; start < n; start += block) {
    size_t m = n - start < block ? n - start : block;
    const Memory *first = static_cast<const Memory *>(src[0]) + start;
    for (size_t i = 0; i < m; i++) acc[i] = E::load(first[i]);
    for (int s = 1; s < sources; s++) {
      const Memory *next = static_cast<const Memory *>(src[s]) + start;
      for (size_t i = 0; i < m; i++) acc[i] = F::of(acc[i], E::load(next[i]));
    }
    for (size_t i = 0; i < m; i++) out[i] = E::store(acc[i]);
    memcpy(static_cast<Memory *>(dst) + start, out, m * sizeof(Memory));
    if (also) memcpy(static_cast<Memory *>(also) + start, out, m * sizeof(Memory));
  }
}

// Row r has the type for which the function row (reduce.cc) returns r. Column c has the function with number c of
// collective.Reduce.
constexpr ReduceTable table = {{
    {reduce<Plain<float>, Sum>, reduce<Plain<float>, Max>, reduce<Plain<float>, Min>},
    {reduce<Plain<double>, Sum>, reduce<Plain<double>, Max>, reduce<Plain<double>, Min>},
    {reduce<BF16, Sum>, reduce<BF16, Max>, reduce<BF16, Min>},
    {reduce<Plain<uint64_t>, Sum>, reduce<Plain<int64_t>, Max>, reduce<Plain<int64_t>, Min>},
    {reduce<Plain<uint32_t>, Sum>, reduce<Plain<int32_t>, Max>, reduce<Plain<int32_t>, Min>},
    {reduce<Plain<uint8_t>, Sum>, reduce<Plain<uint8_t>, Max>, reduce<Plain<uint8_t>, Min>},
}};

} // namespace
} // namespace hetero
