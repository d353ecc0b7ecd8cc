// onednn.h: common code of the kernels on oneDNN primitives. Included only if HT_HAVE_ONEDNN is 1.
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

dnnl::memory::data_type dnnl_type(int32_t dtype); // throws Unsupported for types that oneDNN does not support

// Returns a tensor's dims in oneDNN: the dims of the spec, or 5-d (groups, …) for a 4-d weight with groups > 1.
dnnl::memory::dims dnnl_dims(const ht_spec &spec, int64_t groups = 0);

// Returns the descriptor of a spec with a known layout. groups > 1 means that the spec is a weight of a grouped
// convolution; its layout number then also contains groups, unless it is plain.
Desc desc_of(const ht_spec &spec, int64_t groups = 0);
// The same as desc_of, but with a format that oneDNN chooses.
Desc any_desc(const ht_spec &spec, int64_t groups = 0);

// Returns the layout number of a descriptor that oneDNN chose.
uint32_t layout_of(const Desc &desc, int64_t groups = 0);
// Returns the spec in the layout of desc, with its bytes set.
ht_spec spec_in(const ht_spec &spec, const Desc &desc, int64_t groups = 0);
// Returns the number of groups in a layout number, or 0 if it contains none.
int64_t layout_groups(uint32_t layout);

// Returns the quality of an implementation, according to its name: 2 optimised, 1 im2col with GEMM, 0 reference.
int implementation_priority(const char *name);

// A chain of primitives on the operands of one launch. If the main primitive needs an operand in another format or type
// than that of the spec, the chain copies the operand to the workspace.
class PrimitiveChain {
public:
  // The memory of an argument.
  struct Operand {
    enum Place { input, output, scratch } place;
    int64_t index; // position of the input or output; for scratch, the offset in the workspace
    Desc desc;
  };
  struct Argument {
    int name; // DNNL_ARG_…
    Operand operand;
  };

  // Reserves the given number of bytes in the workspace and returns their offset.
  int64_t reserve(int64_t bytes);
  Operand reserve(const Desc &desc) { return {Operand::scratch, reserve(static_cast<int64_t>(desc.get_size())), desc}; }
  // Appends a primitive, whose scratchpad is in the workspace.
  void add(const dnnl::primitive &primitive, const Desc &scratchpad, std::vector<Argument> arguments);
  // Appends a reorder. Returns false and appends nothing if oneDNN has none.
  bool add_reorder(const Operand &from, const Operand &to);
  // Appends a primitive whose operands exist in other formats. arguments contains the formats that the primitive needs,
  // and outer the existing format of each argument. If the two differ, a reorder of the input precedes the primitive,
  // or a reorder of the output follows it.
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
  std::mutex mutex_; // held during a run: it sets the memory objects, and two streams may run one kernel concurrently
};

// A kernel that consists of a chain.
struct ChainKernel : Kernel {
  PrimitiveChain chain;
  bool together = false; // whether the threads may wait for each other within a primitive
  void run(const Args &args) override {
    Together all(together);
    chain.run(args);
  }
};

} // namespace hetero

#endif // HT_HAVE_ONEDNN
