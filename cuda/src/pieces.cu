// pieces.cu
#include "pieces.h"

#include "gpu.h"

namespace hetero {
namespace {

__global__ void add(int64_t pieces, int64_t stride, int64_t n, const float *partial, float *sums) {
  for (int64_t i = first_index(); i < n; i += index_stride()) {
    float sum = 0;
    for (int64_t p = 0; p < pieces; p++) sum += partial[p * stride + i];
    sums[i] = sum;
  }
}

} // namespace

void add_pieces(int64_t pieces, int64_t stride, int64_t n, const float *partial, float *sums, void *queue) {
  launch(add, over(n), queue, pieces, stride, n, partial, sums);
}

} // namespace hetero
