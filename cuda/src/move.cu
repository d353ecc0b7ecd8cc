// move.cu: ops that only move elements: reorder, transpose, reshape, concat, slice, pad, broadcast.
//
// All of these ops use one kernel, which copies a box of elements. A box has dimensions, and, for src and for dst,
// strides and the offset of the first element. Threads process the box in the order of its dimensions, the last
// fastest, which is the memory order of dst. If groups of 16 bytes are contiguous in src and dst, a thread moves such a
// group as one element.
#include "channels.h"
#include "gpu.h"
#include "ops.h"

namespace hetero {
namespace {

struct Box {
  int ndim = 0;
  int64_t dims[HT_MAX_DIMS] = {}, src_stride[HT_MAX_DIMS] = {}, dst_stride[HT_MAX_DIMS] = {}; // elements
  int64_t src_start = 0, dst_start = 0;

  int64_t size() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; d++) n *= dims[d];
    return n;
  }
  // Returns the same box with as few dimensions as possible.
  Box merged() const;
  // Returns whether all groups of V elements are contiguous and aligned on both sides. If so, packed returns the box of
  // such groups.
  bool packs(int64_t V) const;
  Box packed(int64_t V) const;
  // Returns whether the box is n contiguous elements on both sides.
  bool is_row() const { return ndim == 0 || (ndim == 1 && src_stride[0] == 1 && dst_stride[0] == 1); }
};

Box Box::merged() const {
  Box b = *this;
  b.ndim = 0;
  for (int d = 0; d < ndim; d++) {
    if (dims[d] == 1) continue;
    const int last = b.ndim - 1;
    if (last >= 0 && b.src_stride[last] == dims[d] * src_stride[d] && b.dst_stride[last] == dims[d] * dst_stride[d]) {
      b.dims[last] *= dims[d];
    } else {
      b.dims[b.ndim++] = dims[d];
    }
    b.src_stride[b.ndim - 1] = src_stride[d];
    b.dst_stride[b.ndim - 1] = dst_stride[d];
  }
  return b;
}

bool Box::packs(int64_t V) const {
  const int last = ndim - 1;
  if (last < 0 || src_stride[last] != 1 || dst_stride[last] != 1 || dims[last] % V) return false;
  for (int d = 0; d < last; d++)
    if (src_stride[d] % V || dst_stride[d] % V) return false;
  return src_start % V == 0 && dst_start % V == 0;
}

Box Box::packed(int64_t V) const {
  Box b = *this;
  b.dims[ndim - 1] /= V;
  for (int d = 0; d < ndim - 1; d++) b.src_stride[d] /= V, b.dst_stride[d] /= V;
  b.src_start /= V, b.dst_start /= V;
  return b;
}

template <class T> struct Same {
  static __device__ T of(T v) { return v; }
};
template <class From, class To> struct Cast {
  static __device__ To of(From v) {
    To out;
    store(&out, load(&v));
    return out;
  }
};

template <class From, class To, class Convert> __global__ void move(int64_t n, Box b, const From *src, To *dst) {
  for (int64_t i = first_index(); i < n; i += index_stride()) {
    int64_t rest = i, from = b.src_start, to = b.dst_start;
    for (int d = b.ndim - 1; d >= 0; d--) {
      const int64_t at = rest % b.dims[d];
      rest /= b.dims[d];
      from += at * b.src_stride[d];
      to += at * b.dst_stride[d];
    }
    dst[to] = Convert::of(src[from]);
  }
}

// Launches a move of elements. size is the number of bytes of an element.
void move_bytes(int64_t size, const Box &box, void *queue, const void *src, void *dst) {
  const auto launched = [&](auto type, const Box &b) {
    using T = decltype(type);
    launch(move<T, T, Same<T>>, over(b.size()), queue, b.size(), b, static_cast<const T *>(src), static_cast<T *>(dst));
  };
  if (box.packs(16 / size) && aligned({src, dst})) return launched(Pack<uint32_t>{}, box.packed(16 / size));
  const auto of = [&](auto type) { launched(type, box); };
  switch (size) {
  case 1: return of(uint8_t{});
  case 2: return of(uint16_t{});
  case 4: return of(uint32_t{});
  default: return of(uint64_t{});
  }
}

// Strides of a plain tensor.
void plain_strides(const ht_spec &spec, int64_t *stride) {
  int64_t n = 1;
  for (int d = spec.ndim - 1; d >= 0; d--) {
    stride[d] = n;
    n *= spec.dims[d];
  }
}

// Strides of a tensor in either layout.
void strides(const ht_spec &spec, int64_t *stride) {
  plain_strides(spec, stride);
  if (spec.layout != kNhwc) return;
  stride[1] = 1;
  stride[3] = spec.dims[1];
  stride[2] = spec.dims[1] * spec.dims[3];
}

// Creates a kernel that moves one box per source into the same dst. If `clear` is true, the kernel first zeroes dst.
std::unique_ptr<Kernel> mover(const Specced &k, std::vector<Box> boxes, bool clear) {
  const int64_t size = dtype_size(k.out[0].dtype), bytes = k.out[0].bytes;
  for (Box &b : boxes) b = b.merged();
  return launcher(k, [=](const Args &x) {
    if (clear)
      check(cudaMemsetAsync(x.out[0], 0, size_t(bytes), static_cast<cudaStream_t>(x.queue)), "clear the output");
    for (size_t i = 0; i < boxes.size(); i++) move_bytes(size, boxes[i], x.queue, x.in[i], x.out[0]);
  });
}

const ht_move_params &params_of(const Request &request) { return *static_cast<const ht_move_params *>(request.params); }

Specced plain(const Request &request) {
  Specced k;
  take_plain(k, request);
  for (const ht_spec &s : k.in)
    if (s.dtype == HT_OPAQUE) throw Unsupported("got an opaque operand, want an element type");
  return k;
}

// Returns the box of a plain dst. The caller sets src_stride.
Box box_of(const ht_spec &dst) {
  Box b;
  b.ndim = dst.ndim;
  for (int d = 0; d < dst.ndim; d++) b.dims[d] = dst.dims[d];
  plain_strides(dst, b.dst_stride);
  return b;
}

} // namespace

std::unique_ptr<Kernel> make_reorder(const Request &request) {
  Specced k;
  k.in = request.in;
  k.out = request.out;
  ht_spec &src = k.in[0], &dst = k.out[0];
  if (src.dtype == HT_OPAQUE) throw Unsupported("got an opaque operand, want an element type");
  if (src.layout == HT_LAYOUT_ANY) src = with_layout(src, dst.layout == HT_LAYOUT_ANY ? HT_LAYOUT_PLAIN : dst.layout);
  if (dst.layout == HT_LAYOUT_ANY) dst = with_layout(dst, src.layout);
  set_bytes(src);
  set_bytes(dst);
  Box b;
  b.ndim = dst.ndim;
  int64_t from[HT_MAX_DIMS] = {}, to[HT_MAX_DIMS] = {};
  strides(src, from);
  strides(dst, to);
  const bool nhwc = dst.layout == kNhwc;
  static constexpr int kOrder[] = {0, 2, 3, 1}; // dimensions in memory order
  for (int d = 0; d < dst.ndim; d++) {
    const int o = nhwc ? kOrder[d] : d;
    b.dims[d] = dst.dims[o];
    b.src_stride[d] = from[o];
    b.dst_stride[d] = to[o];
  }
  if (src.dtype == dst.dtype) return mover(k, {b}, false);
  b = b.merged();
  if (b.is_row()) {
    with_float(src, [](auto) {});
    with_float(dst, [](auto) {});
    return launcher(k, [n = b.size(), from = src.dtype, to = dst.dtype](const Args &x) {
      cast(n, from, x.in[0], to, x.out[0], x.queue);
    });
  }
  return with_float(src, [&](auto f) {
    return with_float(dst, [&](auto t) {
      using From = decltype(f);
      using To = decltype(t);
      return launcher(k, [b](const Args &x) {
        launch(move<From, To, Cast<From, To>>, over(b.size()), x.queue, b.size(), b, static_cast<const From *>(x.in[0]),
               static_cast<To *>(x.out[0]));
      });
    });
  });
}

std::unique_ptr<Kernel> make_transpose(const Request &request) {
  const ht_move_params &p = params_of(request);
  Specced k = plain(request);
  if (p.num_axes != k.in[0].ndim)
    throw Invalid("axes: got " + std::to_string(p.num_axes) + ", want " + std::to_string(k.in[0].ndim) + " for " +
                  describe(k.in[0]));
  Box b = box_of(k.out[0]);
  int64_t from[HT_MAX_DIMS] = {};
  plain_strides(k.in[0], from);
  for (int d = 0; d < b.ndim; d++) b.src_stride[d] = from[p.axes[d]];
  return mover(k, {b}, false);
}

std::unique_ptr<Kernel> make_reshape(const Request &request) {
  Specced k = plain(request);
  k.inplace = {{0, 0}};
  const int64_t bytes = k.out[0].bytes;
  return launcher(k, [bytes](const Args &x) {
    if (x.in[0] == x.out[0]) return;
    check(
        cudaMemcpyAsync(x.out[0], x.in[0], size_t(bytes), cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(x.queue)),
        "copy");
  });
}

std::unique_ptr<Kernel> make_concat(const Request &request) {
  const int axis = params_of(request).axes[0];
  Specced k = plain(request);
  std::vector<Box> boxes;
  int64_t start = 0;
  for (const ht_spec &src : k.in) {
    Box b = box_of(k.out[0]);
    b.dims[axis] = src.dims[axis];
    plain_strides(src, b.src_stride);
    b.dst_start = start * b.dst_stride[axis];
    start += src.dims[axis];
    boxes.push_back(b);
  }
  return mover(k, boxes, false);
}

std::unique_ptr<Kernel> make_slice(const Request &request) {
  const ht_move_params &p = params_of(request);
  Specced k = plain(request);
  Box b = box_of(k.out[0]);
  plain_strides(k.in[0], b.src_stride);
  b.src_start = p.start * b.src_stride[p.axes[0]];
  return mover(k, {b}, false);
}

std::unique_ptr<Kernel> make_pad(const Request &request) {
  const ht_move_params &p = params_of(request);
  Specced k = plain(request);
  Box b = box_of(k.out[0]);
  for (int d = 0; d < b.ndim; d++) b.dims[d] = k.in[0].dims[d];
  plain_strides(k.in[0], b.src_stride);
  b.dst_start = p.start * b.dst_stride[p.axes[0]];
  return mover(k, {b}, true);
}

std::unique_ptr<Kernel> make_broadcast(const Request &request) {
  const ht_move_params &p = params_of(request);
  Specced k = plain(request);
  Box b = box_of(k.out[0]);
  int64_t from[HT_MAX_DIMS] = {};
  plain_strides(k.in[0], from);
  for (int d = 0, e = 0, a = 0; d < b.ndim; d++) {
    if (a < p.num_axes && p.axes[a] == d)
      a++;
    else
      b.src_stride[d] = from[e++];
  }
  return mover(k, {b}, false);
}

} // namespace hetero
