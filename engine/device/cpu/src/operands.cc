// operands.cc: checks and layout choices that factories share.
#include "operands.h"

#include <cstring>

#include "layout.h"

namespace hetero {

void want_operands(const Request &request, size_t inputs, size_t outputs) {
  if (request.in.size() != inputs || request.out.size() != outputs)
    throw Invalid("got " + std::to_string(request.in.size()) + " inputs and " + std::to_string(request.out.size()) +
                  " outputs, want " + std::to_string(inputs) + " and " + std::to_string(outputs));
}

bool is_bf16(const ht_spec &spec) {
  if (spec.dtype != HT_F32 && spec.dtype != HT_BF16)
    throw Unsupported("element type of " + describe(spec) + ", want f32 or bf16");
  return spec.dtype == HT_BF16;
}

void want_f32(const ht_spec &spec) {
  if (spec.dtype != HT_F32) throw Unsupported("element type of " + describe(spec) + ", want f32");
}

void take_plain(Kernel &kernel, const Request &request) {
  kernel.in = request.in;
  kernel.out = request.out;
  for (Specs *specs : {&kernel.in, &kernel.out}) {
    for (ht_spec &s : *specs) {
      if (s.dtype == HT_OPAQUE) continue;
      if (specs == &kernel.out && s.layout != HT_LAYOUT_PLAIN && s.layout != HT_LAYOUT_ANY)
        throw Unsupported("an output in layout " + layout_name(s.layout) + ", want plain");
      s = with_layout(s, HT_LAYOUT_PLAIN);
    }
  }
}

namespace {

// The layout that outputs bind, HT_LAYOUT_ANY if none does.
uint32_t bound_layout(const Request &request, const Positions &out) {
  uint32_t bound = HT_LAYOUT_ANY;
  for (int i : out) {
    const uint32_t l = request.out[size_t(i)].layout;
    if (l == HT_LAYOUT_ANY) continue;
    if (bound != HT_LAYOUT_ANY && bound != l)
      throw Unsupported("outputs in layouts " + layout_name(bound) + " and " + layout_name(l) + ", want one layout");
    bound = l;
  }
  return bound;
}

uint32_t give_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                     uint32_t layout) {
  for (int i : in) kernel.in[size_t(i)] = with_layout(request.in[size_t(i)], layout);
  for (int i : out) kernel.out[size_t(i)] = with_layout(request.out[size_t(i)], layout);
  return layout;
}

} // namespace

uint32_t choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                             int made_for) {
  ImageLayout image;
  uint32_t layout = bound_layout(request, out);
  if (made_for >= 0) {
    const uint32_t made = request.in[size_t(made_for)].layout;
    if (layout != HT_LAYOUT_ANY && layout != made)
      throw Unsupported("an output in layout " + layout_name(layout) + " beside an operand made for " +
                        layout_name(made));
    layout = made;
  }
  for (int i : in) {
    if (layout == HT_LAYOUT_ANY && image_layout(request.in[size_t(i)], &image)) layout = request.in[size_t(i)].layout;
  }
  if (layout == HT_LAYOUT_ANY) layout = preferred_image_layout();
  ht_spec probe = in.size() ? request.in[size_t(in[0])] : request.out[size_t(out[0])];
  probe.layout = layout;
  if (!image_layout(probe, &image))
    throw Unsupported("images in layout " + layout_name(layout) + ", want plain, nhwc, nChw8c or nChw16c");
  return give_layout(kernel, request, in, out, layout);
}

uint32_t choose_shared_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out) {
  uint32_t layout = bound_layout(request, out);
  for (int i : in) {
    if (layout == HT_LAYOUT_ANY) layout = request.in[size_t(i)].layout;
  }
  return give_layout(kernel, request, in, out, layout == HT_LAYOUT_ANY ? HT_LAYOUT_PLAIN : layout);
}

void clear_padding(const ht_spec &image, void *data) {
  ImageLayout l;
  if (!image_layout(image, &l) || l.padded_c() == l.c) return;
  const int64_t size = dtype_size(image.dtype), first = l.c % l.blk;
  for (int64_t n = 0; n < l.n; n++) {
    char *block = static_cast<char *>(data) + l.index(n, l.c - first, 0) * size;
    for (int64_t p = 0; p < l.pixels(); p++)
      std::memset(block + (p * l.blk + first) * size, 0, size_t((l.blk - first) * size));
  }
}

} // namespace hetero
