// convolution.cc
#include "convolution.h"

#include "specs.h"

namespace hetero {

const ht_conv2d_params &conv2d_params(const Request &r) {
  auto &p = *static_cast<const ht_conv2d_params *>(r.params);
  for (int d = 0; d < 2; d++)
    if (p.stride[d] < 1 || p.padding[d] < 0 || p.dilation[d] < 1)
      throw Invalid("got stride " + std::to_string(p.stride[d]) + ", padding " + std::to_string(p.padding[d]) +
                    " and dilation " + std::to_string(p.dilation[d]) + ", want at least 1, 0 and 1");
  if (p.groups < 1) throw Invalid("groups: got " + std::to_string(p.groups) + ", want at least 1");
  return p;
}

void check_conv2d(const ht_conv2d_params &p, const ht_spec &src, const ht_spec &weight, const ht_spec &dst) {
  bool ok = src.ndim == 4 && weight.ndim == 4 && dst.ndim == 4;
  ok = ok && src.dims[0] == dst.dims[0] && src.dims[1] == weight.dims[1] * p.groups && dst.dims[1] == weight.dims[0] &&
       weight.dims[0] % p.groups == 0;
  for (int d = 2; ok && d < 4; d++) {
    int64_t free = src.dims[d] + 2 * p.padding[d - 2] - (weight.dims[d] - 1) * p.dilation[d - 2] - 1;
    ok = free >= 0 && free / p.stride[d - 2] + 1 == dst.dims[d];
  }
  if (!ok)
    throw Invalid("the shapes of src " + describe(src) + ", weight " + describe(weight) + " and dst " + describe(dst) +
                  " do not match");
}

} // namespace hetero
