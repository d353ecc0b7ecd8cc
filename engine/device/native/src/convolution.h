// convolution.h: checks of a request for a convolution, for every library.
#pragma once

#include "kernel.h"

namespace hetero {

// Returns the parameters of a HT_CONV2D* request. Throws Invalid if a value is out of range.
const ht_conv2d_params &conv2d_params(const Request &r);

// Throws Invalid unless src (N, C, H, W), weight (O, C/groups, KH, KW) and dst (N, O, OH, OW) match.
void check_conv2d(const ht_conv2d_params &p, const ht_spec &src, const ht_spec &weight, const ht_spec &dst);

} // namespace hetero
