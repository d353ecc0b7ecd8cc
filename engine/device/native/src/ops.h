// ops.h: the kernel factories of a native device, one per op of HT_OPS: make_conv2d, for example. Each library defines
// all of them, in the file (.cc or .cu) of their family.
//
// A factory checks the specs that it depends on. It throws Invalid for a wrong argument, and Unsupported if it has no
// kernel. The engine has already checked the number and the shapes of the operands.
#pragma once

#include <memory>

#include "kernel.h"

namespace hetero {

#define HT_OP(NUMBER, NAME, ...) std::unique_ptr<Kernel> make_##NAME(const Request &);
HT_OPS(HT_OP)
#undef HT_OP

} // namespace hetero
