// elementwise.cc: unary, unary_diff, binary, scale and fill, on tensors of any shape.
//
//     unary        dst = f(src)
//     unary_diff   diff_src = diff_dst·f'(src)
//     binary       dst = f(a, b)                 b is broadcast along dimensions in which it has extent 1 or is missing
//     scale        dst = src·factor
//     fill         dst = value
//
// Operands of one shape are processed in memory order, in any common layout, including padding. If f does not map zero
// to zero, the padding of dst is cleared afterwards. The loops are in elementwise_simd.h.
#include <algorithm>
#include <cstring>

#include "bf16.h"
#include "images.h"
#include "layout.h"
#include "ops.h"
#include "simd_table.h"

namespace hetero {
namespace {

constexpr int64_t kChunk = 16384; // elements of a chunk, which one thread processes: a multiple of sixteen

// Returns the number of elements in memory, including padding.
int64_t memory_elements(const ht_spec &spec) { return spec.bytes / dtype_size(spec.dtype); }

void *at(void *a, int64_t element, int64_t size) { return static_cast<char *>(a) + element * size; }

// Calls f(first, count) for the chunks of n elements, in parallel.
template <class F> void chunks(int64_t n, bool threads, F f) {
#pragma omp parallel for schedule(static) if (threads)
  for (int64_t i = 0; i < (n + kChunk - 1) / kChunk; i++) f(i * kChunk, std::min(kChunk, n - i * kChunk));
}

// Ops on operands of one shape and layout. dst may replace any operand in place.
struct Elementwise : Kernel {
  bool bf16, clears = false; // clears: the padding must be cleared, because the function does not map zero to zero
  int64_t n, size;

  Elementwise(const Request &request, const Positions &images, bool zero_to_zero) : bf16(is_bf16(request.in[0])) {
    Request plain = request;
    plain.out[0].layout = HT_LAYOUT_PLAIN;
    take_plain(*this, plain);
    choose_shared_layout(*this, request, images, {0});
    ImageLayout image;
    clears = !zero_to_zero && has_padding(out[0]);
    if (clears && !image_layout(out[0], &image)) {
      if (request.out[0].layout == out[0].layout)
        throw Unsupported("output: got " + describe(out[0]) + ", whose padding this device cannot clear");
      take_plain(*this, plain);
      clears = false;
    }
    n = memory_elements(out[0]);
    size = dtype_size(out[0].dtype);
    for (int i : images) inplace.push_back({0, i});
  }

  bool threads() const { return worth_threads(out[0].bytes); }
  void finish(void *dst) const {
    if (clears) clear_padding(out[0], dst);
  }
};

struct Unary final : Elementwise {
  ElementwiseTable::Unary f;

  Unary(const Request &request, int func)
      : Elementwise(request, {0}, func != HT_SIGMOID && func != HT_EXP && func != HT_LOG),
        f(simd().elementwise.unary[bf16][func]) {}

  void run(const Args &a) override {
    chunks(n, threads(), [&](int64_t i, int64_t count) { f(count, at(a.in[0], i, size), at(a.out[0], i, size)); });
    finish(a.out[0]);
  }
};

struct UnaryDiff final : Elementwise {
  ElementwiseTable::Binary f;

  UnaryDiff(const Request &request, int func) // in the padding, 1/0 or 1/sqrt(0) times a zero gradient is NaN
      : Elementwise(request, {0, 1}, func != HT_LOG && func != HT_SQRT), f(simd().elementwise.unary_diff[bf16][func]) {}

  void run(const Args &a) override {
    chunks(n, threads(), [&](int64_t i, int64_t count) {
      f(count, at(a.in[0], i, size), at(a.in[1], i, size), at(a.out[0], i, size));
    });
    finish(a.out[0]);
  }
};

struct Binary final : Elementwise {
  ElementwiseTable::Binary f;

  Binary(const Request &request, int func)
      : Elementwise(request, {0, 1}, func != HT_DIV), f(simd().elementwise.binary[bf16][func][0]) {}

  void run(const Args &a) override {
    chunks(n, threads(), [&](int64_t i, int64_t count) {
      f(count, at(a.in[0], i, size), at(a.in[1], i, size), at(a.out[0], i, size));
    });
    finish(a.out[0]);
  }
};

// A binary op whose operand b is broadcast, in plain layouts. A run of adjacent elements of `a` is combined with a run
// of elements of b, or with one element of b.
struct BinaryRepeated final : Kernel {
  ElementwiseTable::Binary f;
  int64_t size, run_length, runs;
  int ndim = 0;                                     // number of dimensions, without the dimension of the run
  int64_t extent[HT_MAX_DIMS], stride[HT_MAX_DIMS]; // outermost first; stride of b in elements, 0 where broadcast

  BinaryRepeated(const Request &request, int func) {
    const bool bf16 = is_bf16(request.in[0]);
    take_plain(*this, request);
    size = dtype_size(in[0].dtype);
    inplace = {{0, 0}};
    // Computes the strides of b over a's dimensions. Adjacent dimensions with matching strides are merged.
    const ht_spec &a = in[0], &b = in[1];
    int64_t step = 1, strides[HT_MAX_DIMS];
    for (int d = a.ndim - 1; d >= 0; d--) {
      const int own = d - (a.ndim - b.ndim);
      const int64_t e = own >= 0 ? b.dims[own] : 1;
      strides[d] = e > 1 ? step : 0;
      step *= e;
    }
    for (int d = 0; d < a.ndim; d++) {
      if (a.dims[d] == 1) continue;
      if (ndim > 0 && stride[ndim - 1] == strides[d] * a.dims[d])
        extent[ndim - 1] *= a.dims[d];
      else
        extent[ndim++] = a.dims[d];
      stride[ndim - 1] = strides[d];
    }
    run_length = ndim > 0 ? extent[ndim - 1] : 1;
    f = simd().elementwise.binary[bf16][func][ndim == 0 || stride[ndim - 1] == 0];
    runs = elements(a) / run_length;
    if (ndim > 0) ndim--;
  }

  void run(const Args &a) override {
#pragma omp parallel for schedule(static) if (worth_threads(out[0].bytes))
    for (int64_t i = 0; i < runs; i++) {
      int64_t b = 0, rest = i;
      for (int d = ndim - 1; d >= 0; d--) {
        b += rest % extent[d] * stride[d];
        rest /= extent[d];
      }
      f(run_length, at(a.in[0], i * run_length, size), at(a.in[1], b, size), at(a.out[0], i * run_length, size));
    }
  }
};

struct Scale final : Elementwise {
  explicit Scale(const Request &request) : Elementwise(request, {0}, true) { want_f32(request.in[1]); }

  void run(const Args &a) override {
    const float factor = *static_cast<const float *>(a.in[1]);
    const auto f = simd().elementwise.scale[bf16];
    chunks(n, threads(),
           [&](int64_t i, int64_t count) { f(count, at(a.in[0], i, size), factor, at(a.out[0], i, size)); });
  }
};

struct Fill final : Kernel {
  char element[8] = {};
  int64_t size;

  Fill(const Request &request, double value) {
    Request plain = request;
    plain.out[0].layout = HT_LAYOUT_PLAIN;
    take_plain(*this, plain);
    choose_shared_layout(*this, request, {}, {0});
    size = dtype_size(out[0].dtype);
    switch (out[0].dtype) {
    case HT_F32: set(float(value)); break;
    case HT_F64: set(value); break;
    case HT_BF16: set(f32_to_bf16(float(value))); break;
    case HT_I64: set(int64_t(value)); break;
    case HT_I32: set(int32_t(value)); break;
    case HT_U32: set(uint32_t(int64_t(value))); break;
    case HT_U8: set(uint8_t(int64_t(value))); break;
    default: throw Unsupported("fill: got " + describe(out[0]) + ", want f32, f64, bf16, i64, i32, u32 or u8");
    }
    ImageLayout image;
    if (value != 0 && has_padding(out[0]) && !image_layout(out[0], &image))
      throw Unsupported("output: got " + describe(out[0]) + ", whose padding this device cannot clear");
  }

  template <class T> void set(T value) { std::memcpy(element, &value, sizeof value); }

  void run(const Args &a) override {
    chunks(memory_elements(out[0]), worth_threads(out[0].bytes), [&](int64_t i, int64_t count) {
      char *dst = static_cast<char *>(at(a.out[0], i, size));
      std::memcpy(dst, element, size_t(size));
      for (int64_t done = 1; done < count; done *= 2) // each copy doubles the part that is already written
        std::memcpy(dst + done * size, dst, size_t(std::min(done, count - done) * size));
    });
    clear_padding(out[0], a.out[0]);
  }
};

int func_of(const Request &request, int last) {
  const int func = static_cast<const ht_elementwise_params *>(request.params)->func;
  if (func < 0 || func > last)
    throw Invalid("function: got " + std::to_string(func) + ", want 0 to " + std::to_string(last));
  return func;
}

} // namespace

std::unique_ptr<Kernel> make_unary(const Request &request) {
  want_operands(request, 1, 1);
  return std::make_unique<Unary>(request, func_of(request, HT_ABS));
}

std::unique_ptr<Kernel> make_unary_diff(const Request &request) {
  want_operands(request, 2, 1);
  return std::make_unique<UnaryDiff>(request, func_of(request, HT_ABS));
}

std::unique_ptr<Kernel> make_binary(const Request &request) {
  want_operands(request, 2, 1);
  const int func = func_of(request, HT_MIN);
  if (same_dims(request.in[0], request.in[1])) return std::make_unique<Binary>(request, func);
  return std::make_unique<BinaryRepeated>(request, func);
}

std::unique_ptr<Kernel> make_scale(const Request &request) {
  want_operands(request, 2, 1);
  return std::make_unique<Scale>(request);
}

std::unique_ptr<Kernel> make_fill(const Request &request) {
  want_operands(request, 0, 1);
  return std::make_unique<Fill>(request, static_cast<const ht_fill_params *>(request.params)->value);
}

} // namespace hetero
