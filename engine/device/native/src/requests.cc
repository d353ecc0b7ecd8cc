// requests.cc: the table of all ops, and the checks of their requests.
#include "requests.h"

#include "ops.h"
#include "specs.h"

namespace hetero {

namespace {

// The factory of an op, and the requirements on every request.
struct OpInfo {
  const char *name;
  Factory make;
  size_t params_bytes;
  int min_in, max_in, min_out, max_out;
};

template <class Params> constexpr size_t kBytes = sizeof(Params);
template <> constexpr size_t kBytes<ht_no_params> = 0;

constexpr OpInfo kOps[] = {
#define HT_OP(NUMBER, NAME, PARAMS, ...) {#NAME, make_##NAME, kBytes<PARAMS>, __VA_ARGS__},
    HT_OPS(HT_OP)
#undef HT_OP
};

const OpInfo *op_info(int32_t op) { return op >= 1 && op < HT_OP_END ? &kOps[op - 1] : nullptr; }

ht_spec checked_spec(const ht_spec &given, bool output) {
  ht_spec s = given;
  if (s.dtype < HT_F32 || s.dtype > HT_OPAQUE)
    throw Invalid("element type: got " + std::to_string(s.dtype) + ", want " + std::to_string(HT_F32) + " to " +
                  std::to_string(HT_OPAQUE));
  if (s.ndim < 0 || s.ndim > HT_MAX_DIMS)
    throw Invalid("got " + std::to_string(s.ndim) + " dimensions, want at most " + std::to_string(HT_MAX_DIMS));
  if (s.dtype == HT_OPAQUE) {
    if (!output && s.bytes <= 0)
      throw Invalid("got an opaque tensor of unknown size, want the spec that the producing kernel returned");
    return s;
  }
  int64_t n = 1;
  for (int i = 0; i < s.ndim; i++)
    if (s.dims[i] < 1 || __builtin_mul_overflow(n, s.dims[i], &n) || n > INT64_MAX / 16)
      throw Invalid("dimensions: got " + describe(s) + ", want each at least 1 and fewer than 2^59 elements in total");
  if (s.layout == HT_LAYOUT_ANY) return s;
  int64_t bytes = bytes_in_memory(s);
  if (s.bytes != 0 && s.bytes != bytes)
    throw Invalid(describe(s) + ": got " + std::to_string(s.bytes) + " bytes, want " + std::to_string(bytes));
  s.bytes = bytes;
  return s;
}

Specs checked_specs(const char *side, const ht_spec *specs, int32_t count, int least, int most) {
  if (count < least || count > most || (count > 0 && !specs))
    throw Invalid("got " + std::to_string(count) + " " + side + "s, want " + std::to_string(least) + " to " +
                  std::to_string(most));
  Specs out;
  for (int32_t i = 0; i < count; i++) {
    try {
      out.push_back(checked_spec(specs[i], side[0] == 'o'));
    } catch (const Invalid &e) {
      throw Invalid(std::string(side) + " " + std::to_string(i) + ": " + e.what());
    }
  }
  return out;
}

} // namespace

std::string op_name(int32_t op) {
  const OpInfo *info = op_info(op);
  return info ? info->name : "op " + std::to_string(op);
}

Request checked_request(int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in,
                        const ht_spec *out, int32_t num_out, int threads) {
  const OpInfo *info = op_info(op);
  if (!info) throw Unsupported("no such op");
  if (params_bytes != info->params_bytes || (params_bytes > 0 && !params))
    throw Invalid("got " + std::to_string(params_bytes) + " bytes of parameters, want " +
                  std::to_string(info->params_bytes));
  return {ht_op(op), params, checked_specs("input", in, num_in, info->min_in, info->max_in),
          checked_specs("output", out, num_out, info->min_out, info->max_out), threads};
}

Factory factory_of(ht_op op) { return kOps[op - 1].make; }

void check_kernel(const Kernel &k, const Request &r) {
  if (k.in.size() != r.in.size() || k.out.size() != r.out.size())
    throw std::logic_error("the kernel has " + std::to_string(k.in.size()) + " inputs and " +
                           std::to_string(k.out.size()) + " outputs, the request has " + std::to_string(r.in.size()) +
                           " and " + std::to_string(r.out.size()));
  for (const Specs *side : {&k.in, &k.out})
    for (const ht_spec &s : *side)
      if (s.layout == HT_LAYOUT_ANY || s.bytes <= 0)
        throw std::logic_error("the kernel did not set the layout or size of an operand: " + describe(s));
  for (size_t i = 0; i < k.in.size(); i++)
    if (!same_dims(k.in[i], r.in[i]) || k.in[i].dtype != r.in[i].dtype)
      throw std::logic_error("the kernel changed the shape or type of input " + std::to_string(i));
  for (size_t i = 0; i < k.out.size(); i++)
    if (r.out[i].layout != HT_LAYOUT_ANY && r.out[i].dtype != HT_OPAQUE && k.out[i].layout != r.out[i].layout)
      throw std::logic_error("the kernel changed the layout of output " + std::to_string(i));
}

} // namespace hetero
