// move.cc: transpose, reshape, concat, slice, pad, broadcast and reduce. All operands are plain (row-major).
//
// All of these ops except reduce copy between two strided views with the same extents. reduce computes a sum, mean or
// maximum over some dimensions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "bf16.h"
#include "images.h"
#include "layout.h"
#include "ops.h"

namespace hetero {
namespace {

constexpr int64_t kPiece = 16384; // approximate number of elements of a chunk, which one thread processes

const ht_move_params &params_of(const Request &request) { return *static_cast<const ht_move_params *>(request.params); }

struct Strides {
  int64_t of[HT_MAX_DIMS];
};

Strides row_major(const ht_spec &spec) {
  Strides s{};
  int64_t step = 1;
  for (int d = spec.ndim - 1; d >= 0; step *= spec.dims[d--]) s.of[d] = step;
  return s;
}

// A copy with extents (E0, E1, …). The element with indices (i0, i1, …) is copied:
//
//     from   src_start + sum over d of i_d·src_stride[d]
//     to     dst_start + sum over d of i_d·dst_stride[d]
struct Copy {
  int ndim = 0; // dimensions with extents > 1, merged where strides match; the last is the inner loop
  int64_t extent[HT_MAX_DIMS], dst_stride[HT_MAX_DIMS], src_stride[HT_MAX_DIMS];
  int64_t dst_start = 0, src_start = 0, size = 1;
  bool squares = false;

  Copy(const ht_spec &shape, const Strides &dst, const Strides &src) : size(dtype_size(shape.dtype)) {
    for (int d = 0; d < shape.ndim; d++) {
      const int64_t e = shape.dims[d];
      if (e == 1) continue;
      const bool joins = ndim > 0 && dst_stride[ndim - 1] == dst.of[d] * e && src_stride[ndim - 1] == src.of[d] * e;
      extent[joins ? ndim - 1 : ndim] = joins ? extent[ndim - 1] * e : e;
      if (!joins) ndim++;
      dst_stride[ndim - 1] = dst.of[d];
      src_stride[ndim - 1] = src.of[d];
    }
    if (ndim == 0) {
      ndim = 1;
      extent[0] = dst_stride[0] = src_stride[0] = 1;
    }
    // If src and dst are contiguous in different dimensions (a transpose), these two dimensions become the inner ones,
    // and are processed in squares.
    for (int d = 0; d < ndim - 1; d++) {
      if (src_stride[d] != 1 || src_stride[ndim - 1] == 1) continue;
      std::rotate(extent + d, extent + d + 1, extent + ndim - 1);
      std::rotate(dst_stride + d, dst_stride + d + 1, dst_stride + ndim - 1);
      std::rotate(src_stride + d, src_stride + d + 1, src_stride + ndim - 1);
      squares = true;
      break;
    }
  }

  void run(const void *src, void *dst) const {
    switch (size) {
    case 1: return run_typed(static_cast<const uint8_t *>(src), static_cast<uint8_t *>(dst));
    case 2: return run_typed(static_cast<const uint16_t *>(src), static_cast<uint16_t *>(dst));
    case 4: return run_typed(static_cast<const uint32_t *>(src), static_cast<uint32_t *>(dst));
    default: return run_typed(static_cast<const uint64_t *>(src), static_cast<uint64_t *>(dst));
    }
  }

  template <class T> void run_typed(const T *src, T *dst) const {
    if (squares) return run_squares(src, dst);
    const int inner = ndim - 1;
    int64_t lines = 1;
    for (int d = 0; d < inner; d++) lines *= extent[d];
    // A single long line is also divided among threads.
    const int64_t cuts = lines == 1 ? (extent[inner] + kPiece - 1) / kPiece : 1;
    const int64_t pieces = cuts > 1 ? cuts : std::min(lines, (lines * extent[inner] + kPiece - 1) / kPiece);
#pragma omp parallel for schedule(static) if (worth_threads(lines * extent[inner] * size))
    for (int64_t piece = 0; piece < pieces; piece++) {
      if (cuts > 1) {
        const int64_t from = piece * kPiece, n = std::min(kPiece, extent[inner] - from);
        line(src + src_start + from * src_stride[inner], dst + dst_start + from * dst_stride[inner], n);
        continue;
      }
      for (int64_t l = lines * piece / pieces; l < lines * (piece + 1) / pieces; l++)
        line(src + src_start + offset(l, inner, src_stride), dst + dst_start + offset(l, inner, dst_stride),
             extent[inner]);
    }
  }

  // Returns the offset of index i over the first count dimensions.
  int64_t offset(int64_t i, int count, const int64_t *stride) const {
    int64_t at = 0;
    for (int d = count - 1; d >= 0; i /= extent[d--]) at += i % extent[d] * stride[d];
    return at;
  }

  template <class T> void run_squares(const T *src, T *dst) const {
    constexpr int64_t kSide = 32;
    const int down = ndim - 2, right = ndim - 1; // src is contiguous along down, and dst along right
    const int64_t bands = (extent[down] + kSide - 1) / kSide;
    int64_t planes = 1;
    for (int d = 0; d < down; d++) planes *= extent[d];
#pragma omp parallel for schedule(static) if (worth_threads(planes * extent[down] * extent[right] * size))
    for (int64_t band = 0; band < planes * bands; band++) {
      const int64_t top = band % bands * kSide, bottom = std::min(extent[down], top + kSide), plane = band / bands;
      const T *s = src + src_start + offset(plane, down, src_stride);
      T *d = dst + dst_start + offset(plane, down, dst_stride);
      for (int64_t left = 0; left < extent[right]; left += kSide)
        for (int64_t y = top; y < bottom; y++)
          for (int64_t x = left; x < std::min(extent[right], left + kSide); x++)
            d[y * dst_stride[down] + x * dst_stride[right]] = s[y + x * src_stride[right]];
    }
  }

  template <class T> void line(const T *src, T *dst, int64_t n) const {
    const int64_t s = src_stride[ndim - 1], d = dst_stride[ndim - 1];
    if (s == 1 && d == 1)
      std::memcpy(dst, src, size_t(n) * sizeof(T));
    else if (s == 0 && d == 1)
      std::fill(dst, dst + n, *src);
    else
      for (int64_t i = 0; i < n; i++) dst[i * d] = src[i * s];
  }
};

// A kernel with one copy per input. If clears is true, dst is larger than the copied parts, and the rest becomes zero.
struct Move final : Kernel {
  std::vector<Copy> copies;
  bool clears = false;

  explicit Move(const Request &request) {
    want_operands(request, std::max<size_t>(1, request.in.size()), 1);
    take_plain(*this, request);
    for (const ht_spec &s : in) {
      if (s.dtype == HT_OPAQUE || dtype_size(s.dtype) == 0 || s.dtype != out[0].dtype)
        throw Invalid("input: got " + describe(s) + ", want the element type of the output " + describe(out[0]));
    }
  }

  void run(const Args &a) override {
    if (clears) std::memset(a.out[0], 0, size_t(out[0].bytes));
    for (size_t i = 0; i < copies.size(); i++)
      if (a.in[i] != a.out[0]) copies[i].run(a.in[i], a.out[0]);
  }
};

// --- reduce --------------------------------------------------------------------------------------

// Results are in row-major order of the kept dimensions. Sums are in f64, in row-major order of the reduced dimensions;
// along a contiguous line, eight chains are summed separately.
struct Reduce final : Kernel {
  bool bf16;
  int func;
  int64_t lines = 1, line = 1; // elements that a result combines: lines, and contiguous elements of a line
  int64_t width = 1, rows = 1; // results: contiguous elements of a row, which are also adjacent in src; rows
  int kept = 0, folded = 0;    // number of dimensions of the rows, and of the lines
  int64_t kept_extent[HT_MAX_DIMS], kept_stride[HT_MAX_DIMS], folded_extent[HT_MAX_DIMS], folded_stride[HT_MAX_DIMS];

  explicit Reduce(const Request &request) : bf16(is_bf16(request.in[0])), func(params_of(request).func) {
    const auto &p = params_of(request);
    want_operands(request, 1, 1);
    if (func < HT_SUM || func > HT_MAXIMUM)
      throw Invalid("function: got " + std::to_string(func) + ", want " + std::to_string(HT_SUM) + " to " +
                    std::to_string(HT_MAXIMUM));
    take_plain(*this, request);
    const Strides strides = row_major(in[0]);
    bool innermost_folded = false;
    for (int d = 0; d < in[0].ndim; d++) {
      const bool fold = std::find(p.axes, p.axes + p.num_axes, d) != p.axes + p.num_axes;
      int &ndim = fold ? folded : kept;
      int64_t *extent = fold ? folded_extent : kept_extent, *stride = fold ? folded_stride : kept_stride;
      const bool joins = d > 0 && ndim > 0 && fold == innermost_folded;
      extent[joins ? ndim - 1 : ndim] = joins ? extent[ndim - 1] * in[0].dims[d] : in[0].dims[d];
      if (!joins) ndim++;
      stride[ndim - 1] = strides.of[d];
      innermost_folded = fold;
    }
    if (in[0].ndim == 0) return;
    if (innermost_folded)
      line = folded_extent[--folded];
    else
      width = kept_extent[--kept];
    for (int d = 0; d < kept; d++) rows *= kept_extent[d];
    for (int d = 0; d < folded; d++) lines *= folded_extent[d];
  }

  void run(const Args &a) override {
    if (bf16)
      run_typed(static_cast<const Bf16 *>(a.in[0]), static_cast<Bf16 *>(a.out[0]));
    else
      run_typed(static_cast<const float *>(a.in[0]), static_cast<float *>(a.out[0]));
  }

  static int64_t offset(int64_t i, int ndim, const int64_t *extent, const int64_t *stride) {
    int64_t at = 0;
    for (int d = ndim - 1; d >= 0; i /= extent[d--]) at += i % extent[d] * stride[d];
    return at;
  }

  template <class T> void run_typed(const T *src, T *dst) const {
    constexpr int64_t kStrip = 1024; // number of results whose sums a thread holds at a time
    const int64_t strips = (width + kStrip - 1) / kStrip;
    const double start = func == HT_MAXIMUM ? -INFINITY : 0, count = double(lines) * double(line);
#pragma omp parallel for schedule(static) if (worth_threads(in[0].bytes))
    for (int64_t i = 0; i < rows * strips; i++) {
      const int64_t row = i / strips, from = i % strips * kStrip, n = std::min(kStrip, width - from);
      const T *base = src + offset(row, kept, kept_extent, kept_stride) + from;
      double acc[kStrip];
      std::fill(acc, acc + n, start);
      for (int64_t l = 0; l < lines; l++) {
        const T *x = base + offset(l, folded, folded_extent, folded_stride);
        if (line > 1)
          acc[0] = fold(acc[0], fold_line(x));
        else
          for (int64_t k = 0; k < n; k++) acc[k] = fold(acc[k], double(to_f32(x[k])));
      }
      for (int64_t k = 0; k < n; k++)
        put(dst + row * width + from + k, float(func == HT_MEAN ? acc[k] / count : acc[k]));
    }
  }

  // Returns a + b; for a maximum, the larger value, or NaN if either is NaN.
  double fold(double a, double b) const { return func != HT_MAXIMUM ? a + b : a > b || a != a ? a : b; }

  template <class T> double fold_line(const T *x) const {
    double chain[8];
    std::fill(chain, chain + 8, func == HT_MAXIMUM ? -INFINITY : 0);
    int64_t i = 0;
    for (; i + 8 <= line; i += 8)
      for (int c = 0; c < 8; c++) chain[c] = fold(chain[c], double(to_f32(x[i + c])));
    for (int c = 0; i < line; i++, c++) chain[c] = fold(chain[c], double(to_f32(x[i])));
    double all = chain[0];
    for (int c = 1; c < 8; c++) all = fold(all, chain[c]);
    return all;
  }
};

int axis_of(const Request &request, const ht_spec &spec) {
  const int axis = params_of(request).axes[0];
  if (axis < 0 || axis >= spec.ndim)
    throw Invalid("axis: got " + std::to_string(axis) + " for " + describe(spec) + ", want 0 to " +
                  std::to_string(spec.ndim - 1));
  return axis;
}

} // namespace

std::unique_ptr<Kernel> make_transpose(const Request &request) {
  auto k = std::make_unique<Move>(request);
  const auto &p = params_of(request);
  const Strides from = row_major(k->in[0]);
  Strides permuted{};
  if (p.num_axes != k->in[0].ndim)
    throw Invalid("axes: got " + std::to_string(p.num_axes) + ", want " + std::to_string(k->in[0].ndim) + " for " +
                  describe(k->in[0]));
  for (int d = 0; d < p.num_axes; d++) {
    if (p.axes[d] < 0 || p.axes[d] >= p.num_axes)
      throw Invalid("axis: got " + std::to_string(p.axes[d]) + " for " + describe(k->in[0]) + ", want 0 to " +
                    std::to_string(p.num_axes - 1));
    permuted.of[d] = from.of[p.axes[d]];
  }
  k->copies.emplace_back(k->out[0], row_major(k->out[0]), permuted);
  return k;
}

std::unique_ptr<Kernel> make_reshape(const Request &request) {
  auto k = std::make_unique<Move>(request);
  k->copies.emplace_back(k->out[0], row_major(k->out[0]), row_major(k->out[0]));
  k->inplace = {{0, 0}};
  return k;
}

std::unique_ptr<Kernel> make_concat(const Request &request) {
  auto k = std::make_unique<Move>(request);
  const int axis = axis_of(request, k->out[0]);
  const Strides to = row_major(k->out[0]);
  int64_t start = 0;
  for (const ht_spec &s : k->in) {
    k->copies.emplace_back(s, to, row_major(s));
    k->copies.back().dst_start = start * to.of[axis];
    start += s.dims[axis];
  }
  return k;
}

std::unique_ptr<Kernel> make_slice(const Request &request) {
  auto k = std::make_unique<Move>(request);
  const Strides from = row_major(k->in[0]);
  k->copies.emplace_back(k->out[0], row_major(k->out[0]), from);
  k->copies[0].src_start = params_of(request).start * from.of[axis_of(request, k->in[0])];
  return k;
}

std::unique_ptr<Kernel> make_pad(const Request &request) {
  auto k = std::make_unique<Move>(request);
  const Strides to = row_major(k->out[0]);
  k->copies.emplace_back(k->in[0], to, row_major(k->in[0]));
  k->copies[0].dst_start = params_of(request).start * to.of[axis_of(request, k->in[0])];
  k->clears = true;
  return k;
}

std::unique_ptr<Kernel> make_broadcast(const Request &request) {
  auto k = std::make_unique<Move>(request);
  const auto &p = params_of(request);
  Strides repeated{};
  int64_t step = 1;
  for (int d = k->out[0].ndim - 1; d >= 0; d--) {
    if (std::find(p.axes, p.axes + p.num_axes, d) != p.axes + p.num_axes) continue;
    repeated.of[d] = step;
    step *= k->out[0].dims[d];
  }
  k->copies.emplace_back(k->out[0], row_major(k->out[0]), repeated);
  return k;
}

std::unique_ptr<Kernel> make_reduce(const Request &request) { return std::make_unique<Reduce>(request); }

} // namespace hetero
