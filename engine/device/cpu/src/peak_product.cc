// peak_product.cc: the inner loops for x86-64, and products by oneDNN.
#include "peak_product.h"

#include <cstring>

#include "isa.h"
#include "kernel.h"
#if HT_HAVE_ONEDNN
#include "onednn.h"
#endif

namespace hetero {

PeakLoops peak_loops() {
  PeakLoops l = generic_peak_loops();
#if defined(__x86_64__)
  if (isa() == Isa::avx2) l = avx2_peak_loops();
  if (isa() == Isa::avx512) l = avx512_peak_loops();
  if (has_avx512bf16()) l.bf16 = avx512_bf16_peak;
#if HT_HAVE_AMX
  if (has_amx_bf16()) l.bf16 = amx_bf16_peak;
#endif
#endif
  return l;
}

// Measures products of oneDNN, with operands in the formats that oneDNN chooses.
double measure_product([[maybe_unused]] int32_t dtype, [[maybe_unused]] double seconds, int) {
#if HT_HAVE_ONEDNN
  using namespace dnnl;
  return measure_sizes(seconds, [&](int64_t n) -> std::function<void()> {
    auto any = [&](memory::data_type t) { return Desc({n, n}, t, memory::format_tag::any); };
    const auto type = dnnl_type(dtype);
    const matmul::primitive_desc pd(cpu_engine(), any(type), any(type), any(memory::data_type::f32));
    const matmul product(pd);
    memory a(pd.src_desc(), cpu_engine()), b(pd.weights_desc(), cpu_engine()), c(pd.dst_desc(), cpu_engine());
    for (memory *m : {&a, &b}) std::memset(m->get_data_handle(), 0x3c, m->get_desc().get_size()); // 0.011 in both types
    stream s(cpu_engine());
    return [=]() mutable {
      product.execute(s, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
      s.wait();
    };
  });
#else
  throw Unsupported("measure_peak: the library was built without oneDNN");
#endif
}

} // namespace hetero
