// image_normalize.cu: converts the bytes of images to the input of a network.
//
//     dst = src·a + b,  a = 1/(255·std),  b = -mean/std        a and b: one value per channel
//
// The product is rounded before the sum, because the compiler contracts no operation here. Results are therefore
// bit-equal on all devices. A thread computes 16 bytes of dst.
#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

struct Geometry {
  int64_t elements, channels, pixels;
  bool nhwc; // layout of dst; src is always (N, H, W, C)
};

struct alignas(8) Line {
  float a, b;
}; // coefficients of a channel

// Computes V adjacent elements of dst from `at` on. In nhwc, they are also adjacent in src; in plain layout, they
// belong to one channel.
template <int V, class T>
__device__ void normalize(const Geometry &g, int64_t at, const uint8_t *src, const Line *lines, T *dst) {
  Pack<uint8_t, V> bytes;
  int64_t channel;
  if (g.nhwc) {
    channel = at >> 32 ? at % g.channels : static_cast<uint32_t>(at) % static_cast<uint32_t>(g.channels);
    bytes = *reinterpret_cast<const Pack<uint8_t, V> *>(src + at);
  } else {
    const int64_t plane = at / g.pixels;
    channel = plane % g.channels;
    const uint8_t *from = src + (plane / g.channels * g.pixels + at % g.pixels) * g.channels + channel;
    for (int v = 0; v < V; v++) bytes.v[v] = from[v * g.channels];
  }
  float value[V];
  for (int v = 0; v < V; v++) {
    const Line line = lines[channel];
    const float product = static_cast<float>(bytes.v[v]) * line.a;
    value[v] = product + line.b;
    if (g.nhwc && ++channel == g.channels) channel = 0;
  }
  store_row<V>(dst, at, value);
}

template <int V, class T> __global__ void normalize_all(Geometry g, const uint8_t *src, const Line *lines, T *dst) {
  for (int64_t i = first_index(); i < g.elements / V; i += index_stride()) normalize<V>(g, i * V, src, lines, dst);
  for (int64_t i = g.elements / V * V + first_index(); i < g.elements; i += index_stride())
    normalize<1>(g, i, src, lines, dst);
}

} // namespace

std::unique_ptr<Kernel> make_image_normalize(const Request &request) {
  const auto &p = *static_cast<const ht_image_normalize_params *>(request.params);
  if (request.in[0].dtype != HT_U8) throw Invalid("src: got " + describe(request.in[0]) + ", want u8");
  const int64_t channels = request.in[0].dims[3];
  if (p.channels != channels)
    throw Invalid("mean: got " + std::to_string(p.channels) + " channels, want " + std::to_string(channels));
  Specced k;
  k.in = request.in;
  k.in[0] = with_layout(k.in[0], HT_LAYOUT_PLAIN);
  k.out = request.out;
  const bool nhwc = choose_image_layout(k, request, {}, {0});
  const Geometry g{elements(k.out[0]), channels, k.in[0].dims[1] * k.in[0].dims[2], nhwc};
  std::vector<Line> lines;
  for (int64_t c = 0; c < channels; c++) lines.push_back({1 / (255 * p.std[c]), -p.mean[c] / p.std[c]});
  return with_float(k.out[0], [&](auto type) {
    using T = decltype(type);
    return launcher(k, [g, table = Table(lines)](const Args &x) {
      constexpr int most = Pack<T>::size;
      const bool wide = (g.nhwc || g.pixels % most == 0) && aligned({x.in[0], x.out[0]});
      launch(wide ? normalize_all<most, T> : normalize_all<1, T>, over(wide ? g.elements / most + 1 : g.elements),
             x.queue, g, static_cast<const uint8_t *>(x.in[0]), table.template as<Line>(), static_cast<T *>(x.out[0]));
    });
  });
}

} // namespace hetero
