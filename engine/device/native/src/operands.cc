// operands.cc
#include "operands.h"

#include "specs.h"

namespace hetero {

void want_operands(const Request &request, size_t inputs, size_t outputs) {
  if (request.in.size() != inputs || request.out.size() != outputs)
    throw Invalid("got " + std::to_string(request.in.size()) + " inputs and " + std::to_string(request.out.size()) +
                  " outputs, want " + std::to_string(inputs) + " and " + std::to_string(outputs));
}

void want_f32(const ht_spec &spec) {
  if (spec.dtype != HT_F32) throw Unsupported("element type: got " + describe(spec) + ", want f32");
}

void take_plain(Kernel &kernel, const Request &request) {
  kernel.in = request.in;
  kernel.out = request.out;
  for (Specs *specs : {&kernel.in, &kernel.out}) {
    for (ht_spec &s : *specs) {
      if (s.dtype == HT_OPAQUE) continue;
      if (specs == &kernel.out && s.layout != HT_LAYOUT_PLAIN && s.layout != HT_LAYOUT_ANY)
        throw Unsupported("output: got layout " + layout_name(s.layout) + ", want plain");
      s = with_layout(s, HT_LAYOUT_PLAIN);
    }
  }
}

uint32_t bound_layout(const Request &request, const Positions &out) {
  uint32_t bound = HT_LAYOUT_ANY;
  for (int i : out) {
    const uint32_t l = request.out[size_t(i)].layout;
    if (l == HT_LAYOUT_ANY) continue;
    if (bound != HT_LAYOUT_ANY && bound != l)
      throw Unsupported("outputs: got layouts " + layout_name(bound) + " and " + layout_name(l) + ", want one layout");
    bound = l;
  }
  return bound;
}

uint32_t bound_layout(const Request &request, const Positions &out, int made_for) {
  const uint32_t bound = bound_layout(request, out);
  if (made_for < 0) return bound;
  const uint32_t made = request.in[size_t(made_for)].layout;
  if (bound != HT_LAYOUT_ANY && bound != made)
    throw Unsupported("output: got layout " + layout_name(bound) + ", want " + layout_name(made) +
                      ", the layout of input " + std::to_string(made_for));
  return made;
}

void give_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out, uint32_t layout) {
  for (int i : in) kernel.in[size_t(i)] = with_layout(request.in[size_t(i)], layout);
  for (int i : out) kernel.out[size_t(i)] = with_layout(request.out[size_t(i)], layout);
}

uint32_t choose_shared_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out) {
  uint32_t layout = bound_layout(request, out);
  for (int i : in)
    if (layout == HT_LAYOUT_ANY) layout = request.in[size_t(i)].layout;
  if (layout == HT_LAYOUT_ANY) layout = HT_LAYOUT_PLAIN;
  give_layout(kernel, request, in, out, layout);
  return layout;
}

} // namespace hetero
