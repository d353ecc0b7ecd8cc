// pieces.cu
#include "pieces.h"

#include "gpu.h"

namespace hetero {
namespace {

// A thread loads kAhead values before it adds them: few threads have work, and would wait for one load after another.
constexpr int kAhead = 16;

__global__ void add(int64_t pieces, int64_t stride, int64_t n, const float *partial, float *sums) {
  for (int64_t i = first_index(); i < n; i += index_stride()) {
    float sum = 0, value[kAhead];
    for (int64_t p = 0; p < pieces; p += kAhead) {
      for (int k = 0; k < kAhead; k++) value[k] = p + k < pieces ? partial[(p + k) * stride + i] : 0;
      for (int k = 0; k < kAhead; k++) sum += value[k];
    }
    sums[i] = sum;
  }
}

} // namespace

void add_pieces(int64_t pieces, int64_t stride, int64_t n, const float *partial, float *sums, void *queue) {
  launch(add, over(n), queue, pieces, stride, n, partial, sums);
}

} // namespace hetero
