// choice_sample.h: the work that represents an op when its kernels are timed.
#pragma once

#include <string>

#include "kernel.h"

namespace hetero {

// A request like that of the op. It has fewer samples, rows or classes if this hardly affects the comparison of the
// kernels.
struct Sample {
  Request request;
  double flops; // floating-point operations of a launch
};

Sample sample_of(const Request &r);

// Returns a text that is equal for requests with equal samples, without tabs and line ends.
std::string describe(const Sample &sample);

// Fills input i of the sample, in the layout of spec, with values that are valid for the op.
void fill_input(const Sample &sample, size_t i, const ht_spec &spec, void *data);

} // namespace hetero
