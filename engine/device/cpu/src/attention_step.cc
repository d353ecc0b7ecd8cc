// attention_step.cc: attention of the next position of each sample, with cached keys and values.
//
// A task is one head of one sample and belongs to one thread, so results do not depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "images.h"
#include "layout.h"
#include "ops.h"
#include "transformer_table.h"

namespace hetero {
namespace {

struct AttentionStep final : Kernel {
  int64_t n, t, c, d, heads, group, row_bytes, size, floats, parts; // group: heads of q for each head of k and v
  bool bf16;
  float scale;

  explicit AttentionStep(const Request &request) : parts(request.threads) {
    const auto &p = *static_cast<const ht_attention_params *>(request.params);
    take_plain(*this, request);
    want_operands(request, 6, 1);
    if (in[5].dtype != HT_I32) throw Invalid("lengths: got " + describe(in[5]) + ", want i32");
    heads = p.heads;
    if (heads < 1 || p.kv_heads < 1 || heads % p.kv_heads != 0)
      throw Invalid("heads of k and v: got " + std::to_string(p.kv_heads) + " for " + std::to_string(heads) +
                    " heads of q");
    group = heads / p.kv_heads;
    bf16 = is_bf16(in[0]);
    n = in[0].dims[0];
    t = in[3].dims[1];
    c = in[0].dims[2];
    d = c / heads;
    size = dtype_size(in[0].dtype);
    row_bytes = p.kv_heads * d * size;
    scale = float(1 / std::sqrt(double(d)));
    floats = t + 1 + d; // scratch memory of a part: t + 1 scores, then the weighted sum of values (d)
    workspace = parts * floats * int64_t(sizeof(float));
  }

  void run(const Args &a) override {
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < parts; part++)
      for (int64_t i = part; i < n * heads; i += parts)
        head(a, i / heads, i % heads, static_cast<float *>(a.workspace) + part * floats);
  }

  void head(const Args &a, int64_t s, int64_t h, float *scores) const {
    const TransformerTable &f = transformer();
    const int64_t used = std::clamp<int64_t>(static_cast<const int32_t *>(a.in[5])[s], 0, t), at = h / group * d * size;
    const auto rows = [&](size_t operand, int64_t row) {
      return static_cast<const char *>(a.in[operand]) + row * row_bytes + at;
    };
    const char *q = static_cast<const char *>(a.in[0]) + (s * c + h * d) * size;
    float *sum = scores + t + 1, largest, total;
    f.key_scores[bf16](used, d, q, rows(3, s * t), row_bytes, scale, scores);
    f.key_scores[bf16](1, d, q, rows(1, s), row_bytes, scale, scores + used);
    f.exponentials(used + 1, used + 1, scores, &largest, &total);
    std::fill(sum, sum + d, 0.0f);
    f.add_values[bf16](used, d, scores, rows(4, s * t), row_bytes, sum);
    f.add_values[bf16](1, d, scores + used, rows(2, s), row_bytes, sum);
    f.narrow[bf16](d, sum, 1 / total, static_cast<char *>(a.out[0]) + (s * c + h * d) * size);
  }
};

} // namespace

std::unique_ptr<Kernel> make_attention_step(const Request &request) { return std::make_unique<AttentionStep>(request); }

} // namespace hetero
