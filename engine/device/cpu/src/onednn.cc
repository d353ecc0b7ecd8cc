// onednn.cc: chains of oneDNN primitives that run on the operands of a launch.
#include "onednn.h"

#if HT_HAVE_ONEDNN

#include <cstring>

#include "layout.h"

namespace hetero {

int implementation_priority(const char *name) {
  if (std::strstr(name, "ref") || std::strstr(name, "simple")) return 0;
  if (std::strstr(name, "gemm") && !std::strstr(name, "brg")) return 1;
  return 2;
}

int64_t PrimitiveChain::reserve(int64_t bytes) {
  int64_t offset = workspace_;
  workspace_ += (bytes + 63) / 64 * 64;
  return offset;
}

void PrimitiveChain::add(const dnnl::primitive &primitive, const Desc &scratchpad, std::vector<Argument> arguments) {
  if (scratchpad.get_size() > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, reserve(scratchpad)});
  Link link;
  link.primitive = primitive;
  for (const Argument &a : arguments) {
    link.memories.emplace_back(a.operand.desc, cpu_engine(), nullptr);
    link.exec.push_back({a.name, link.memories.back().get()});
  }
  link.arguments = std::move(arguments);
  links_.push_back(std::move(link));
}

bool PrimitiveChain::add_reorder(const Operand &from, const Operand &to) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::reorder::primitive_desc pd(cpu_engine(), from.desc, cpu_engine(), to.desc, attr, true);
  if (!pd.get(true)) return false;
  add(dnnl::reorder(pd), pd.scratchpad_desc(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  return true;
}

void PrimitiveChain::need_reorder(const Operand &from, const Operand &to) {
  if (!add_reorder(from, to)) throw Unsupported("oneDNN has no reorder between the formats of an operand");
}

void PrimitiveChain::add_staged(const dnnl::primitive &primitive, const Desc &scratchpad,
                                std::vector<Argument> arguments, const std::vector<Desc> &outer) {
  std::vector<std::pair<Operand, Operand>> after; // reorders from scratch to outputs, after the primitive
  for (size_t i = 0; i < arguments.size(); i++) {
    Operand &o = arguments[i].operand;
    if (o.desc == outer[i]) continue;
    Operand lies{o.place, o.index, outer[i]};
    o = reserve(o.desc);
    if (lies.place == Operand::output)
      after.emplace_back(o, lies);
    else
      need_reorder(lies, o);
  }
  add(primitive, scratchpad, std::move(arguments));
  for (const auto &[from, to] : after) need_reorder(from, to);
}

void PrimitiveChain::run(const Args &args) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Link &link : links_) {
    for (size_t i = 0; i < link.arguments.size(); i++) {
      const Operand &o = link.arguments[i].operand;
      void *p = o.place == Operand::input    ? args.in[o.index]
                : o.place == Operand::output ? args.out[o.index]
                                             : static_cast<char *>(args.workspace) + o.index;
      dnnl_memory_set_data_handle(link.memories[i].get(), p);
    }
    dnnl_status_t status = dnnl_primitive_execute(link.primitive.get(), cpu_stream().get(),
                                                  static_cast<int>(link.exec.size()), link.exec.data());
    if (status != dnnl_success)
      throw std::runtime_error("a oneDNN primitive failed with status " + std::to_string(status));
  }
}

} // namespace hetero

#endif // HT_HAVE_ONEDNN
