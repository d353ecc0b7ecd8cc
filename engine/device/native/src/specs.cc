// specs.cc: sizes and descriptions of operands.
#include "specs.h"

#include <cstring>

namespace hetero {

int64_t dtype_size(int32_t dtype) {
  switch (dtype) {
  case HT_F64:
  case HT_I64: return 8;
  case HT_F32:
  case HT_I32:
  case HT_U32: return 4;
  case HT_BF16:
  case HT_F16: return 2;
  case HT_U8:
  case HT_OPAQUE: return 1;
  default: return 0;
  }
}

int64_t elements(const ht_spec &spec) {
  int64_t n = 1;
  for (int i = 0; i < spec.ndim; i++) n *= spec.dims[i];
  return n;
}

int64_t bytes_in_memory(const ht_spec &spec) {
  if (spec.dtype == HT_OPAQUE) return spec.bytes;
  if (spec.layout == HT_LAYOUT_PLAIN) return elements(spec) * dtype_size(spec.dtype);
  return private_bytes(spec);
}

void set_bytes(ht_spec &spec) {
  if (spec.dtype != HT_OPAQUE) spec.bytes = bytes_in_memory(spec);
}

bool has_padding(const ht_spec &spec) {
  return spec.dtype != HT_OPAQUE && bytes_in_memory(spec) > elements(spec) * dtype_size(spec.dtype);
}

ht_spec with_layout(ht_spec spec, uint32_t layout) {
  spec.layout = layout;
  set_bytes(spec);
  return spec;
}

ht_spec make_spec(int32_t dtype, std::initializer_list<int64_t> dims) {
  ht_spec spec{};
  spec.dtype = dtype;
  for (int64_t d : dims) spec.dims[spec.ndim++] = d;
  set_bytes(spec);
  return spec;
}

ht_spec opaque_spec(int64_t bytes) {
  ht_spec spec{};
  spec.dtype = HT_OPAQUE;
  spec.bytes = bytes;
  return spec;
}

bool same_dims(const ht_spec &a, const ht_spec &b) {
  return a.ndim == b.ndim && std::memcmp(a.dims, b.dims, sizeof(a.dims[0]) * static_cast<size_t>(a.ndim)) == 0;
}

std::string describe(const ht_spec &spec) {
  static const char *const names[] = {"?", "f32", "f64", "bf16", "f16", "i64", "i32", "u32", "u8", "opaque"};
  std::string s = spec.dtype > 0 && spec.dtype <= HT_OPAQUE ? names[spec.dtype] : "?";
  s += '(';
  for (int i = 0; i < spec.ndim && i < HT_MAX_DIMS; i++) s += (i ? ", " : "") + std::to_string(spec.dims[i]);
  s += ')';
  if (spec.layout != HT_LAYOUT_PLAIN) s += " " + layout_name(spec.layout);
  return s;
}

} // namespace hetero
