// Checks that oneDNN has the kinds of primitives that engine/device/cpu/src uses.
#include "oneapi/dnnl/dnnl.hpp"
#include "oneapi/dnnl/dnnl_debug.h"

int main() {
  using namespace dnnl;
  engine cpu(engine::kind::cpu, 0);
  stream work(cpu);
  const memory::desc any({16, 16, 8, 8}, memory::data_type::f32, memory::format_tag::any);
  const memory::desc weights({16, 16, 3, 3}, memory::data_type::f32, memory::format_tag::any);
  const memory::desc plain({16, 16}, memory::data_type::bf16, memory::format_tag::ab);
  primitive_attr attr;
  attr.set_scratchpad_mode(scratchpad_mode::user);
  convolution_forward::primitive_desc conv(cpu, prop_kind::forward_training, algorithm::convolution_direct, any,
                                           weights, any, {1, 1}, {1, 1}, {1, 1}, attr);
  matmul::primitive_desc product(cpu, plain, plain, plain, attr);
  reorder::primitive_desc copy(cpu, plain, cpu, plain, attr, true);
  return dnnl_version()->major + static_cast<int>(dnnl_set_max_cpu_isa(dnnl_cpu_isa_default)) +
         (dnnl_fmt_tag2str(dnnl_ab) == nullptr);
}
