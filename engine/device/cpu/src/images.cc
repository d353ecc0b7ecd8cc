// images.cc
#include "images.h"

#include <cstring>

#include "layout.h"

namespace hetero {

bool is_bf16(const ht_spec &spec) {
  if (spec.dtype != HT_F32 && spec.dtype != HT_BF16)
    throw Unsupported("element type: got " + describe(spec) + ", want f32 or bf16");
  return spec.dtype == HT_BF16;
}

uint32_t choose_image_layout(Kernel &kernel, const Request &request, const Positions &in, const Positions &out,
                             int made_for) {
  ImageLayout image;
  uint32_t layout = bound_layout(request, out, made_for);
  for (int i : in) {
    if (layout == HT_LAYOUT_ANY && image_layout(request.in[size_t(i)], &image)) layout = request.in[size_t(i)].layout;
  }
  if (layout == HT_LAYOUT_ANY) layout = preferred_image_layout();
  ht_spec probe = in.size() ? request.in[size_t(in[0])] : request.out[size_t(out[0])];
  probe.layout = layout;
  if (!image_layout(probe, &image))
    throw Unsupported("images: got layout " + layout_name(layout) + ", want plain, nhwc, nChw8c or nChw16c");
  give_layout(kernel, request, in, out, layout);
  return layout;
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
