// choice_sample.cc
#include "choice_sample.h"

#include <algorithm>
#include <cstring>

#include "layout.h"
#include "requests.h"
#include "specs.h"

namespace hetero {
namespace {

// Largest number of rows of a sample for 8 threads. Fewer rows would not occupy all threads.
constexpr int64_t kMostRows = 512;
constexpr int64_t kMostClasses = 4096; // largest number of classes of a sample; every kernel then has several chunks
// Largest number of positions of a sample. With more, the time per pair of positions hardly changes.
constexpr int64_t kMostPositions = 1024;

// Returns the smallest power of two that is at least n.
int64_t power(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

int64_t most_rows(int threads) { return std::clamp(power(64 * int64_t(threads)), kMostRows, 16 * kMostRows); }
int64_t row_class(int64_t rows, int threads) { return std::min(power(rows), most_rows(threads)); }

// Returns the class of a number of images: the number rounded up to a power of two, up to a limit. The limit is the
// number of images that have about 8192 pixels in total, but at least 32 images.
int64_t image_class(int64_t images, int64_t pixels) {
  constexpr int64_t most_pixels = 8192, least = 32;
  return std::min(power(images), std::max(power(most_pixels / pixels), least));
}

bool is_convolution(ht_op op) { return op == HT_CONV2D || op == HT_CONV2D_DIFF_SRC || op == HT_CONV2D_DIFF_WEIGHTS; }

bool is_attention(ht_op op) { return op == HT_ATTENTION || op == HT_ATTENTION_DIFF; }

// Returns the index of q, or of the packed q, k and v.
size_t first_source(ht_op op) { return op == HT_ATTENTION ? 0 : 3; }

void set_layout(ht_spec &spec, uint32_t layout) {
  spec.layout = layout;
  spec.bytes = 0;
  if (layout != HT_LAYOUT_ANY) set_bytes(spec);
}

double product(const ht_spec &a, int64_t n) { return 2.0 * double(elements(a)) * double(n); }

} // namespace

Sample sample_of(const Request &r) {
  Sample s{r, 0};
  Specs &in = s.request.in, &out = s.request.out;
  switch (r.op) {
  case HT_LINEAR:
  case HT_LINEAR_DIFF_SRC:
    in[0].dims[0] = out[0].dims[0] = row_class(in[0].dims[0], r.threads);
    s.flops = product(in[0], out[0].dims[1]);
    break;
  case HT_LINEAR_DIFF_WEIGHTS:
    // The layout of this result is also that of optimizer state, so the choice must not depend on the batch.
    in[0].dims[0] = in[1].dims[0] = most_rows(r.threads);
    s.flops = product(in[0], in[1].dims[1]);
    break;
  case HT_LINEAR_CROSS_ENTROPY:
  case HT_LINEAR_CROSS_ENTROPY_DIFF: {
    const bool backward = r.op == HT_LINEAR_CROSS_ENTROPY_DIFF;
    const int64_t rows = in[0].dims[0], classes = in[1].dims[0];
    const int64_t n = row_class(rows, r.threads), k = std::min(classes, kMostClasses);
    in[0].dims[0] = in[2].dims[0] = n;
    in[1].dims[0] = k;
    if (backward) {
      in[3].dims[0] = out[0].dims[0] = n;
      out[1].dims[0] = k;
      if (out.size() == 3) out[2].dims[0] = k;
    } else {
      for (ht_spec &spec : out) spec.dims[0] = n;
    }
    if (const size_t bias = backward ? 5 : 3; in.size() > bias) in[bias].dims[0] = k;
    s.flops = (backward ? 3 : 1) * product(in[0], k);
    break;
  }
  case HT_ATTENTION:
  case HT_ATTENTION_DIFF: {
    const auto &p = *static_cast<const ht_attention_params *>(r.params);
    const size_t first = first_source(r.op), sources = p.packed ? 1 : 3;
    // A task is one head of one sample (for a gradient, one key/value head). More samples than the threads need would
    // only take longer, at the same speed.
    const int64_t heads = r.op == HT_ATTENTION ? p.heads : std::max(1, p.kv_heads);
    const int64_t n = std::min(in[first].dims[0], (2 * int64_t(r.threads) + heads - 1) / heads);
    const int64_t t = std::min(power(in[first].dims[1]), kMostPositions);
    for (size_t i = 0; i < in.size(); i++) {
      const bool lse = r.op == HT_ATTENTION_DIFF && i == 2, key = p.p > 0 && i + 1 == in.size();
      if (!key) in[i].dims[0] = n;
      if (i < first + sources) in[i].dims[lse ? 2 : 1] = t;
    }
    for (size_t i = 0; i < out.size(); i++) {
      out[i].dims[0] = n;
      out[i].dims[r.op == HT_ATTENTION && i == 1 ? 2 : 1] = t;
    }
    const int64_t channels = in[first].dims[2] / (p.packed ? 3 : 1);
    const double pairs = double(n) * double(t) * double(t) * (p.causal ? 0.5 : 1.0);
    s.flops = (r.op == HT_ATTENTION ? 4 : 10) * pairs * double(channels);
    break;
  }
  case HT_CONV2D:
  case HT_CONV2D_DIFF_SRC:
  case HT_CONV2D_DIFF_WEIGHTS: {
    // Both kernels of a weight gradient have the same layout, so the choice may depend on the batch.
    const bool of_weights = r.op == HT_CONV2D_DIFF_WEIGHTS;
    const ht_spec &weight = of_weights ? r.out[0] : r.in[1];
    const ht_spec &dst = of_weights ? r.in[1] : r.op == HT_CONV2D ? r.out[0] : r.in[0];
    const int64_t n = image_class(dst.dims[0], dst.dims[2] * dst.dims[3]);
    in[0].dims[0] = n;
    (of_weights ? in[1] : out[0]).dims[0] = n;
    s.flops = 2.0 * double(elements(weight)) * double(n) * double(dst.dims[2]) * double(dst.dims[3]);
    break;
  }
  default: throw std::logic_error("sample of " + op_name(r.op) + ": this op has one kernel");
  }
  // The layouts of operands follow from the choice, so the choice must not depend on them: all layouts of an operand
  // give the same sample.
  const bool open_weight =
      r.op == HT_LINEAR || r.op == HT_LINEAR_DIFF_SRC || r.op == HT_CONV2D || r.op == HT_CONV2D_DIFF_SRC;
  for (size_t i = 0; i < in.size(); i++) {
    const bool image = is_convolution(r.op) && (i == 0 || r.op == HT_CONV2D_DIFF_WEIGHTS);
    set_layout(in[i], open_weight && i == 1 ? HT_LAYOUT_ANY : image ? kNhwc : HT_LAYOUT_PLAIN);
  }
  for (ht_spec &spec : out) set_layout(spec, HT_LAYOUT_ANY);
  return s;
}

std::string describe(const Sample &sample) {
  const Request &r = sample.request;
  std::string text = op_name(r.op);
  for (const ht_spec &spec : r.in) text += " " + describe(spec);
  text += " to";
  for (const ht_spec &spec : r.out) text += " " + describe(spec);
  if (is_convolution(r.op)) {
    const auto &p = *static_cast<const ht_conv2d_params *>(r.params);
    const auto both = [](const auto *v) { return std::to_string(v[0]) + "x" + std::to_string(v[1]); };
    text += ", stride " + both(p.stride) + ", padding " + both(p.padding) + ", dilation " + both(p.dilation);
  }
  if (is_attention(r.op)) {
    const auto &p = *static_cast<const ht_attention_params *>(r.params);
    text += ", " + std::to_string(p.heads) + " heads";
    if (p.kv_heads != p.heads) text += ", " + std::to_string(p.kv_heads) + " of keys";
    if (p.causal) text += ", causal";
    if (p.packed) text += ", packed";
    if (p.lengths) text += ", lengths";
    if (p.p > 0) text += ", dropout";
  }
  return text + ", " + std::to_string(r.threads) + (r.threads == 1 ? " thread" : " threads");
}

void fill_input(const Sample &sample, size_t i, const ht_spec &spec, void *data) {
  const Request &r = sample.request;
  const bool labels = (r.op == HT_LINEAR_CROSS_ENTROPY || r.op == HT_LINEAR_CROSS_ENTROPY_DIFF) && i == 2;
  const bool lengths = is_attention(r.op) && spec.dtype == HT_I32;
  // Small numbers in every float type: f32 0.0115, bf16 0.0115. Zeros could be faster than real data.
  std::memset(data, 0x3c, size_t(spec.bytes));
  if (!labels && !lengths) return;
  auto *values = static_cast<int32_t *>(data);
  for (int64_t k = 0; k < spec.dims[0]; k++)
    values[k] = int32_t(labels ? k % r.in[1].dims[0] : r.in[first_source(r.op)].dims[1]);
}

} // namespace hetero
