// plain_types.h: element access of the plain kernels, and their operands.
#pragma once

#include "bf16.h"
#include "kernel.h"
#include "layout.h"

namespace hetero {

inline float load(const float *p) { return *p; }
inline float load(const uint16_t *p) { return bf16_to_f32(*p); }
inline void store(float *p, float v) { *p = v; }
inline void store(uint16_t *p, float v) { *p = f32_to_bf16(v); }

// Calls f with a null pointer of the element type: float or uint16_t (bf16).
template <class F> void with_type(const ht_spec &s, F f) {
  if (s.dtype == HT_F32)
    f(static_cast<float *>(nullptr));
  else if (s.dtype == HT_BF16)
    f(static_cast<uint16_t *>(nullptr));
  else
    throw Unsupported(describe(s) + ": want f32 or bf16");
}

// Sets the operands of a kernel to those of the request, all plain.
inline void take_plain_operands(Kernel &k, const Request &r) {
  for (const ht_spec &s : r.out)
    if (s.layout >= HT_LAYOUT_FIRST_PRIVATE) throw Unsupported(describe(s) + ": want the plain layout");
  for (const ht_spec &s : r.in) k.in.push_back(with_layout(s, HT_LAYOUT_PLAIN));
  for (const ht_spec &s : r.out) k.out.push_back(with_layout(s, HT_LAYOUT_PLAIN));
}

} // namespace hetero
