// layout.cc: converts layout numbers to and from oneDNN's descriptors.
#include "layout.h"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "isa.h"
#include "kernel.h"
#if HT_HAVE_ONEDNN
#include "oneapi/dnnl/dnnl_debug.h"
#include "onednn.h"
#endif

namespace hetero {

bool image_layout(const ht_spec &spec, ImageLayout *out) {
  if (spec.ndim != 4) return false;
  ImageLayout l{spec.dims[0], spec.dims[1], spec.dims[2], spec.dims[3], 1, spec.dims[1], false};
  switch (spec.layout) {
  case HT_LAYOUT_PLAIN: break;
  case kNhwc:
    l.blk = l.c;
    l.cblocks = 1;
    l.nhwc = true;
    break;
  case kNChw8c: l.blk = 8; break;
  case kNChw16c: l.blk = 16; break;
  default: return false;
  }
  if (!l.nhwc) l.cblocks = (l.c + l.blk - 1) / l.blk;
  *out = l;
  return true;
}

uint32_t preferred_image_layout() {
#if HT_HAVE_ONEDNN
  if (isa() == Isa::avx512) return kNChw16c;
  if (isa() == Isa::avx2) return kNChw8c;
#endif
  return HT_LAYOUT_PLAIN;
}

int64_t private_bytes(const ht_spec &spec) {
  ImageLayout image;
  if (image_layout(spec, &image)) return image.elements() * dtype_size(spec.dtype);
#if HT_HAVE_ONEDNN
  return static_cast<int64_t>(desc_of(spec).get_size());
#else
  throw Invalid("this device has no layout " + std::to_string(spec.layout));
#endif
}

#if HT_HAVE_ONEDNN

static_assert(HT_LAYOUT_FIRST_PRIVATE + dnnl_format_tag_last < (1 << 12),
              "format tags fit their bits of a layout number");

namespace {

constexpr int kGroupShift = 12;
constexpr uint32_t kTagMask = (1u << kGroupShift) - 1;
constexpr int64_t kMaxGroups = (1 << 16) - 1;

// Descriptors that have no format tag, in the order of their registration.
std::mutex registry_mutex;
std::vector<Desc> &registry() {
  static auto *r = new std::vector<Desc>;
  return *r;
}

Desc registered(uint32_t layout) {
  std::lock_guard<std::mutex> lock(registry_mutex);
  size_t i = layout & ~kRegistered;
  if (i >= registry().size()) throw Invalid("this device has no layout " + std::to_string(layout));
  return registry()[i];
}

bool matches_tag(const Desc &desc, dnnl_format_tag_t tag) {
  dnnl_memory_desc_t other = nullptr;
  auto dims = desc.get_dims();
  if (dnnl_memory_desc_create_with_tag(&other, static_cast<int>(dims.size()), dims.data(),
                                       static_cast<dnnl_data_type_t>(desc.get_data_type()), tag) != dnnl_success)
    return false; // the tag belongs to another number of dimensions
  bool equal = dnnl_memory_desc_equal(desc.get(), other);
  dnnl_memory_desc_destroy(other);
  return equal;
}

dnnl_format_tag_t plain_tag(size_t dims) {
  static const dnnl_format_tag_t tags[] = {dnnl_a, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
  if (dims >= sizeof(tags) / sizeof(tags[0]))
    throw Unsupported("got " + std::to_string(dims) + " dimensions, want at most " +
                      std::to_string(sizeof(tags) / sizeof(tags[0]) - 1));
  return tags[dims];
}

} // namespace

const dnnl::engine &cpu_engine() {
  static auto *e = new dnnl::engine(dnnl::engine::kind::cpu, 0); // never destroyed: threads may outlive main
  return *e;
}

const dnnl::stream &cpu_stream() {
  static auto *s = new dnnl::stream(cpu_engine());
  return *s;
}

dnnl::memory::data_type dnnl_type(int32_t dtype) {
  switch (dtype) {
  case HT_F32: return dnnl::memory::data_type::f32;
  case HT_BF16: return dnnl::memory::data_type::bf16;
  case HT_I32: return dnnl::memory::data_type::s32;
  case HT_U8: return dnnl::memory::data_type::u8;
  default: throw Unsupported("element type: got " + std::to_string(dtype) + ", want f32, bf16, i32 or u8");
  }
}

dnnl::memory::dims dnnl_dims(const ht_spec &spec, int64_t groups) {
  if (spec.ndim == 0) return {1};
  if (groups <= 1) return dnnl::memory::dims(spec.dims, spec.dims + spec.ndim);
  if (spec.ndim != 4 || spec.dims[0] % groups)
    throw Invalid("layout: got " + describe(spec) + ", want 4 dimensions, the first divisible by " +
                  std::to_string(groups) + ", the number of groups");
  return {groups, spec.dims[0] / groups, spec.dims[1], spec.dims[2], spec.dims[3]};
}

int64_t layout_groups(uint32_t layout) { return layout & kRegistered ? 0 : (layout >> kGroupShift) & kMaxGroups; }

Desc desc_of(const ht_spec &spec, int64_t groups) {
  auto type = dnnl_type(spec.dtype);
  if (spec.layout == HT_LAYOUT_ANY) throw Invalid("got layout any, want a layout of this device");
  if (spec.layout & kRegistered) {
    Desc d = registered(spec.layout);
    if (d.get_data_type() != type ||
        (d.get_dims() != dnnl_dims(spec) && d.get_dims() != dnnl_dims(spec, d.get_dims()[0])))
      throw Invalid("layout: got " + describe(spec) + ", want a layout for the shape and element type of the tensor");
    return d;
  }
  if (int64_t g = layout_groups(spec.layout)) {
    if (groups > 1 && g != groups)
      throw Invalid("layout: got " + std::to_string(g) + " groups, want " + std::to_string(groups));
    groups = g;
  }
  auto dims = dnnl_dims(spec, groups);
  auto tag = spec.layout == HT_LAYOUT_PLAIN
                 ? plain_tag(dims.size())
                 : static_cast<dnnl_format_tag_t>((spec.layout & kTagMask) - HT_LAYOUT_FIRST_PRIVATE);
  dnnl_memory_desc_t d = nullptr;
  if (tag >= dnnl_format_tag_last || tag <= dnnl_format_tag_any ||
      dnnl_memory_desc_create_with_tag(&d, static_cast<int>(dims.size()), dims.data(),
                                       static_cast<dnnl_data_type_t>(type), tag) != dnnl_success)
    throw Invalid("this device has no layout " + std::to_string(spec.layout) + " for a tensor of " +
                  std::to_string(spec.ndim) + " dimensions");
  return Desc(d);
}

Desc any_desc(const ht_spec &spec, int64_t groups) {
  return Desc(dnnl_dims(spec, groups), dnnl_type(spec.dtype), dnnl::memory::format_tag::any);
}

uint32_t layout_of(const Desc &desc, int64_t groups) {
  auto plain = plain_tag(desc.get_dims().size());
  if (matches_tag(desc, plain)) return HT_LAYOUT_PLAIN;
  if (groups <= kMaxGroups) {
    uint32_t high = groups > 1 ? static_cast<uint32_t>(groups) << kGroupShift : 0;
    for (int tag = dnnl_format_tag_any + 1; tag < dnnl_format_tag_last; tag++)
      if (matches_tag(desc, static_cast<dnnl_format_tag_t>(tag)))
        return high | (HT_LAYOUT_FIRST_PRIVATE + static_cast<uint32_t>(tag));
  }
  std::lock_guard<std::mutex> lock(registry_mutex);
  auto &r = registry();
  for (size_t i = 0; i < r.size(); i++)
    if (r[i] == desc) return kRegistered | static_cast<uint32_t>(i);
  r.push_back(desc);
  return kRegistered | static_cast<uint32_t>(r.size() - 1);
}

ht_spec spec_in(const ht_spec &spec, const Desc &desc, int64_t groups) {
  ht_spec s = spec;
  s.layout = layout_of(desc, groups);
  s.bytes = static_cast<int64_t>(desc.get_size());
  return s;
}

#endif // HT_HAVE_ONEDNN

std::string layout_name(uint32_t layout) {
  switch (layout) {
  case HT_LAYOUT_PLAIN: return "plain";
  case HT_LAYOUT_ANY: return "any";
  case kNhwc: return "nhwc";
  case kNChw8c: return "nChw8c";
  case kNChw16c: return "nChw16c";
  }
#if HT_HAVE_ONEDNN
  uint32_t tag = (layout & kTagMask) - HT_LAYOUT_FIRST_PRIVATE;
  if (!(layout & kRegistered) && tag < dnnl_format_tag_last) {
    std::string name = dnnl_fmt_tag2str(static_cast<dnnl_format_tag_t>(tag));
    int64_t g = layout_groups(layout);
    return g ? name + " (" + std::to_string(g) + " groups)" : name;
  }
#endif
  return "layout " + std::to_string(layout);
}

} // namespace hetero
