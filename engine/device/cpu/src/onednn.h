// onednn.h: what the kernels on oneDNN primitives share. Included only where HT_HAVE_ONEDNN is 1.
#pragma once

#if HT_HAVE_ONEDNN

#include <memory>
#include <mutex>
#include <vector>

#include "kernel.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "team.h"

namespace hetero {

using Desc = dnnl::memory::desc;

const dnnl::engine &cpu_engine();
const dnnl::stream &cpu_stream();

dnnl::memory::data_type dnnl_type(int32_t dtype); // throws Unsupported for types that oneDNN lacks

// The dims by which oneDNN knows a tensor: those of the spec, or 5-d (groups, …) for a 4-d weight with groups > 1.
dnnl::memory::dims dnnl_dims(const ht_spec &spec, int64_t groups = 0);

// The descriptor of a spec whose layout is known. groups > 1: the spec is a weight of a grouped convolution (its
// layout number says so too unless it is plain).
Desc desc_of(const ht_spec &spec, int64_t groups = 0);
// The same with the format left to oneDNN.
Desc any_desc(const ht_spec &spec, int64_t groups = 0);

// The layout number of a descriptor that oneDNN chose.
uint32_t layout_of(const Desc &desc, int64_t groups = 0);
// spec in the layout of desc, bytes filled.
ht_spec spec_in(const ht_spec &spec, const Desc &desc, int64_t groups = 0);
// The groups that a layout number carries; 0 for none.
int64_t layout_groups(uint32_t layout);

// How good an implementation is, by its name: 2 optimised, 1 im2col with GEMM, 0 reference.
int implementation_rank(const char *name);

// A chain of primitives over the operands of one launch. Operands that the chain's main primitive wants in another
// format or type than the spec says pass through the workspace.
class PrimitiveChain {
public:
  // Where an argument's memory comes from.
  struct Operand {
    enum Place { input, output, scratch } place;
    int64_t index; // of the input or output, or the offset in the workspace
    Desc desc;
  };
  struct Argument {
    int name; // DNNL_ARG_…
    Operand operand;
  };

  // Reserves bytes of workspace and returns their offset.
  int64_t reserve(int64_t bytes);
  Operand reserve(const Desc &desc) { return {Operand::scratch, reserve(static_cast<int64_t>(desc.get_size())), desc}; }
  // Appends a primitive; its scratchpad comes from the workspace.
  void add(const dnnl::primitive &primitive, const Desc &scratchpad, std::vector<Argument> arguments);
  // Appends a reorder; false, appending nothing, where oneDNN has none.
  bool add_reorder(const Operand &from, const Operand &to);
  // Appends a primitive with operands in the formats that it wants (in its arguments) from and to where they lie
  // (in outer, one for each argument): reorders inputs before and outputs after where the two differ.
  void add_staged(const dnnl::primitive &primitive, const Desc &scratchpad, std::vector<Argument> arguments,
                  const std::vector<Desc> &outer);

  int64_t workspace_bytes() const { return workspace_; }
  void run(const Args &args);

private:
  void need_reorder(const Operand &from, const Operand &to);
  struct Link {
    dnnl::primitive primitive;
    std::vector<Argument> arguments;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> exec;
  };
  std::vector<Link> links_;
  int64_t workspace_ = 0;
  std::mutex mutex_; // the memory objects are set for each launch; two streams may run one kernel at once
};

// A kernel that is nothing but a chain.
struct ChainKernel : Kernel {
  PrimitiveChain chain;
  bool together = false; // a primitive's threads may wait for one another
  void run(const Args &args) override {
    Together all(together);
    chain.run(args);
  }
};

} // namespace hetero

#endif // HT_HAVE_ONEDNN
