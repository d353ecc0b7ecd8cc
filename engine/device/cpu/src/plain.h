// plain.h: convolutions and linear layers over plain tensors in plain C++. They are used in builds without oneDNN, and
// for ops that oneDNN does not implement (bf16 without AVX-512). They use all threads, but are many times slower than
// oneDNN.
#pragma once

#include <memory>
#include <utility>

#include "kernel.h"

namespace hetero {

std::unique_ptr<Kernel> make_plain_conv2d(const Request &);
std::unique_ptr<Kernel> make_plain_conv2d_diff_src(const Request &);
std::unique_ptr<Kernel> make_plain_conv2d_diff_weights(const Request &);
std::unique_ptr<Kernel> make_plain_linear(const Request &);
std::unique_ptr<Kernel> make_plain_linear_diff_src(const Request &);
std::unique_ptr<Kernel> make_plain_linear_diff_weights(const Request &);

// Returns k, or the plain kernel if k is null.
inline std::unique_ptr<Kernel> or_plain(std::unique_ptr<Kernel> k, const Request &r,
                                        std::unique_ptr<Kernel> (*make_plain)(const Request &)) {
  return k ? std::move(k) : make_plain(r);
}

} // namespace hetero
