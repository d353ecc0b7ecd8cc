// peak_product_arm64.cc: the inner loops for arm64, and products by the kernels of this library.
#include <memory>
#include <vector>

#include "isa_arm64.h"
#include "kernel.h"
#include "ops.h"
#include "peak_product.h"
#include "specs.h"

namespace hetero {

PeakLoops peak_loops() {
  PeakLoops l = generic_peak_loops();
  if (has_bfmmla()) l.bf16 = bfmmla_peak;
  return l;
}

namespace {

// The kernel of a linear layer with its memory.
struct SquareProduct {
  SquareProduct(int32_t dtype, int64_t n, int threads) : matrix(make_spec(dtype, {n, n})) {
    const ht_linear_params params{};
    const ht_spec sums = make_spec(HT_F32, {n, n});
    kernel = make_linear({HT_LINEAR, &params, {matrix, matrix}, {sums}, threads});
    memory.assign(size_t(2 * matrix.bytes + sums.bytes + kernel->workspace + 64), 0x3c); // 0.011 in both types
  }
  void run() {
    char *at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    void *in[] = {at + kernel->workspace, at + kernel->workspace + matrix.bytes},
         *out[] = {at + kernel->workspace + 2 * matrix.bytes};
    kernel->run({in, out, at, nullptr});
  }

  ht_spec matrix;
  std::unique_ptr<Kernel> kernel;
  std::vector<char> memory;
};

} // namespace

double measure_product(int32_t dtype, double seconds, int threads) {
  return measure_sizes(seconds, [=](int64_t n) {
    const auto product = std::make_shared<SquareProduct>(dtype, n, threads);
    return [product] { product->run(); };
  });
}

} // namespace hetero
