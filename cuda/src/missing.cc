// missing.cc: what this device has no kernels for yet.
#include "ops.h"

namespace hetero {

std::unique_ptr<Kernel> make_linear(const Request &) { throw Unsupported("no kernel"); }
std::unique_ptr<Kernel> make_linear_diff_src(const Request &) { throw Unsupported("no kernel"); }
std::unique_ptr<Kernel> make_linear_diff_weights(const Request &) { throw Unsupported("no kernel"); }

} // namespace hetero
