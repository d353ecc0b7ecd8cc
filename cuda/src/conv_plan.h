// conv_plan.h: a convolution as a cuDNN graph, the engine configurations that are allowed for it, and a configuration
// that is ready to run.
//
// The rules keep training reproducible, and results as accurate as the element types. An engine is not allowed if cuDNN
// reports one of these notes for it:
//
//   - nondeterministic
//   - down-converted inputs
//   - reduced-precision sums
//   - Winograd or FFT transforms
//   - tensor cores, if TF32 does not represent all values of the operands: with f32 operands, tensor cores round to
//     TF32
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dnn.h"

namespace hetero {

enum class Pass { forward, diff_src, diff_weights };

// The role of an operand in y = x * w + bias, where * is the convolution. In a gradient pass, x, w and y also name the
// gradients of these tensors.
enum Role { kX, kW, kY, kBias, kRoles };

// A tensor (N, C, H, W), a weight (O, I, KH, KW) or a bias (1, O, 1, 1).
struct Dense {
  int32_t dtype = 0; // ht_dtype; 0: no operand
  std::array<int64_t, 4> dims{};

  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t bytes() const;
  bool operator==(const Dense &o) const { return dtype == o.dtype && dims == o.dims; }
};

inline Role result_of(Pass pass) { return pass == Pass::forward ? kY : pass == Pass::diff_src ? kX : kW; }

// The graph that cuDNN must compute. The number of groups follows from the channels of x and w.
struct ConvGraph {
  Pass pass;
  bool nhwc;
  bool chained; // an identity follows the convolution: engines for chains may support f32 results where others do not
  bool tf32;    // operands are f32 with values that TF32 represents
  Dense operand[kRoles]; // kBias: a bias that the graph adds
  std::array<int64_t, 2> stride, padding, dilation;
};

// An engine with its settings. Together with a graph, they determine a plan.
struct EngineChoice {
  int64_t engine = 0;                             // cuDNN's global index of the engine
  bool compiled = false;                          // cuDNN compiles the engine on creation, which takes about a second
  std::vector<std::pair<int32_t, int64_t>> knobs; // type and value of each setting

  std::string text() const; // "engine 34 knobs 2=5 13=0"
};

// A graph that cuDNN has accepted. The constructor throws DnnError if cuDNN does not support the graph.
class BuiltGraph {
public:
  explicit BuiltGraph(const ConvGraph &graph);

  // Returns the allowed engines that the heuristics suggest, the best first, without duplicates. turned_down collects
  // the reasons why other engines are not allowed.
  std::vector<EngineChoice> choices(std::string &turned_down) const;
  const Descriptor &graph() const { return graph_; }

private:
  void offer(cudnnBackendHeurMode_t mode, std::vector<EngineChoice> &list, std::string &turned_down) const;

  bool tf32_;
  std::vector<Descriptor> parts_; // components of the graph
  Descriptor graph_;
};

// An engine choice that is ready to run. The constructor throws DnnError if the engine rejects the graph.
class ConvPlan {
public:
  ConvPlan(const BuiltGraph &graph, const EngineChoice &choice);

  int64_t workspace() const { return workspace_; } // bytes
  // Enqueues the convolution, and allocates nothing on the device. Addresses are multiples of 16. The address of an
  // operand that the graph lacks is nullptr.
  void run(void *const (&operand)[kRoles], void *workspace, void *queue);

private:
  std::vector<Descriptor> knobs_;
  Descriptor engine_, config_, plan_; // kept because plan_ may refer to them
  int64_t workspace_ = 0;
  // The addresses of the last run, for reuse: a program passes the same addresses in every run.
  std::optional<Descriptor> pack_;
  std::array<void *, kRoles + 1> packed_{};
};

} // namespace hetero
