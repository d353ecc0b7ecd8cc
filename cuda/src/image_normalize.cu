// image_normalize.cu: network input from bytes: dst = src·a + b, a = 1/(255·std), b = -mean/std; the product is rounded before the sum.
//
// A byte has 256 values: what becomes of each, a channel, is a table made on the host, so that all devices have the same bits.
#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

struct Geometry {
  int64_t elements, channels, pixels;
  bool nhwc; // of dst; src always lies (N, H, W, C)
};

template <class T> __global__ void normalize(Geometry g, const uint8_t *src, const T *table, T *dst) {
  for (int64_t i = first_index(); i < g.elements; i += index_stride()) { // in dst's order
    int64_t from = i, channel;
    if (g.nhwc) {
      channel = i % g.channels;
    } else {
      const int64_t plane = i / g.pixels;
      channel = plane % g.channels;
      from = (plane / g.channels * g.pixels + i % g.pixels) * g.channels + channel;
    }
    dst[i] = table[channel * 256 + src[from]];
  }
}

} // namespace

std::unique_ptr<Kernel> make_image_normalize(const Request &request) {
  const auto &p = *static_cast<const ht_image_normalize_params *>(request.params);
  if (request.in[0].dtype != HT_U8) throw Invalid("src: got " + describe(request.in[0]) + ", want u8");
  const int64_t channels = request.in[0].dims[3];
  if (p.channels != channels)
    throw Invalid("got means of " + std::to_string(p.channels) + " channels, want " + std::to_string(channels));
  Specced k;
  k.in = request.in;
  k.in[0] = with_layout(k.in[0], HT_LAYOUT_PLAIN);
  k.out = request.out;
  const bool nhwc = choose_image_layout(k, request, {}, {0});
  const Geometry g{elements(k.out[0]), channels, k.in[0].dims[1] * k.in[0].dims[2], nhwc};
  return with_float(k.out[0], [&](auto type) {
    using T = decltype(type);
    std::vector<T> values(static_cast<size_t>(channels) * 256);
    for (int64_t c = 0; c < channels; c++) {
      const float a = 1 / (255 * p.std[c]), b = -p.mean[c] / p.std[c];
      for (int64_t i = 0; i < 256; i++) {
        const float product = static_cast<float>(i) * a;
        store(&values[static_cast<size_t>(c * 256 + i)], product + b);
      }
    }
    return launcher(k, [g, table = Table(values)](const Args &x) {
      launch(normalize<T>, over(g.elements), x.queue, g, static_cast<const uint8_t *>(x.in[0]), table.template as<T>(),
             static_cast<T *>(x.out[0]));
    });
  });
}

} // namespace hetero
