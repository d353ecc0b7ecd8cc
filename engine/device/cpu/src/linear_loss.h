// linear_loss.h: the common base of the kernels of a linear layer with softmax cross-entropy.
#pragma once

#include <algorithm>
#include <cstring>

#include "images.h"
#include "kernel.h"

namespace hetero {

// Return the kernels that use the tiles of pair_product.h, or nullptr if these kernels do not support the request.
std::unique_ptr<Kernel> make_pair_linear_loss(const Request &request);
std::unique_ptr<Kernel> make_pair_linear_loss_diff(const Request &request);

// Regions of a workspace, each aligned to 64 bytes.
struct Regions {
  int64_t end = 0;
  int64_t add(int64_t bytes) {
    const int64_t at = end;
    end += up(bytes, 64);
    return at;
  }
};

struct LinearLoss : Kernel {
  bool bf16, biased;
  int64_t rows;  // number of rows, including ignored rows
  int64_t block; // number of rows of a block
  int64_t channels, classes, size;
  size_t bias_at;
  Regions regions;
  int64_t used_at, x_at;

  LinearLoss(const Request &request, size_t inputs, int64_t most_rows)
      : bf16(is_bf16(request.in[0])), biased(request.in.size() > inputs), bias_at(inputs) {
    take_plain(*this, request);
    if (in[1].dtype != in[0].dtype) throw Invalid("weight: got " + describe(in[1]) + ", want src's type");
    if (in[2].dtype != HT_I32) throw Invalid("labels: got " + describe(in[2]) + ", want i32");
    if (biased) want_f32(in[bias_at]);
    rows = in[0].dims[0];
    block = std::min(most_rows, up(rows, 8));
    channels = in[0].dims[1];
    classes = in[1].dims[0];
    size = dtype_size(in[0].dtype);
    if (rows > INT32_MAX) throw Unsupported("rows: got " + std::to_string(rows) + ", want at most 2147483647");
    used_at = regions.add(rows * int64_t(sizeof(int32_t)));
    x_at = regions.add(up(rows, block) * channels * size);
  }

  ht_spec typed(std::initializer_list<int64_t> dims) const { return make_spec(in[0].dtype, dims); }

  const float *bias(const Args &a, int64_t k) const {
    return biased ? static_cast<const float *>(a.in[bias_at]) + k : nullptr;
  }
  char *weight(const Args &a, int64_t k) const { return static_cast<char *>(a.in[1]) + k * channels * size; }

  // Lists the rows that are not ignored, copies them to x, and returns their number. Fills the last block with zeros.
  int64_t gather(const Args &a, char *memory) const {
    const auto *labels = static_cast<const int32_t *>(a.in[2]);
    auto *used = reinterpret_cast<int32_t *>(memory + used_at);
    int64_t count = 0;
    for (int64_t r = 0; r < rows; r++) {
      if (labels[r] >= classes)
        throw std::runtime_error("label " + std::to_string(r) + ": got " + std::to_string(labels[r]) +
                                 ", want below the " + std::to_string(classes) + " classes");
      if (labels[r] >= 0) used[count++] = int32_t(r);
    }
    const int64_t row = channels * size;
    for (int64_t i = 0; i < count; i++)
      std::memcpy(memory + x_at + i * row, static_cast<const char *>(a.in[0]) + used[i] * row, size_t(row));
    std::memset(memory + x_at + count * row, 0, size_t((up(count, block) - count) * row));
    return count;
  }
};

} // namespace hetero
