// conv_plan.h: one convolution as a cuDNN graph, the engine configurations that may compute it, and a configuration ready to run.
//
// What may compute it is what keeps a training reproducible and its results those of the element types: engines that cuDNN notes as
// nondeterministic, as converting inputs down, as summing in a narrower type, and Winograd and FFT transforms are turned down; for f32
// those on tensor cores as well, which round to TF32, unless that changes nothing.
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

// The operands by their places in y = x * w + bias, whatever is computed from what.
enum Role { kX, kW, kY, kBias, kRoles };

// A tensor (N, C, H, W), a weight (O, I, KH, KW) or a bias (1, O, 1, 1).
struct Dense {
  int32_t dtype = 0; // ht_dtype; 0: there is none
  std::array<int64_t, 4> dims{};

  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t bytes() const;
  bool operator==(const Dense &o) const { return dtype == o.dtype && dims == o.dims; }
};

inline Role result_of(Pass pass) { return pass == Pass::forward ? kY : pass == Pass::diff_src ? kX : kW; }

// What cuDNN is asked for. The number of groups follows from the channels of x and w.
struct ConvGraph {
  Pass pass;
  bool nhwc;
  bool
      chained; // the result goes through an identity: where engines of single convolutions give no f32, those of chains do
  bool tf32;             // operands are f32 and hold nothing that TF32 does not
  Dense operand[kRoles]; // a bias: it is added in the same graph
  std::array<int64_t, 2> stride, padding, dilation;
};

// An engine with its settings: all that makes a plan of a graph.
struct EngineChoice {
  int64_t engine = 0;                             // its global index
  bool compiled = false;                          // when it is made, which takes a second
  std::vector<std::pair<int32_t, int64_t>> knobs; // type, value

  std::string text() const; // "engine 34 knobs 2=5 13=0"
};

// A graph, finalised. Throws DnnError where cuDNN has no such graph.
class BuiltGraph {
public:
  explicit BuiltGraph(const ConvGraph &graph);

  // What heuristics offer for it and may be used, the best first, each once. turned_down collects why others may not.
  std::vector<EngineChoice> choices(std::string &turned_down) const;
  const Descriptor &graph() const { return graph_; }

private:
  void offer(cudnnBackendHeurMode_t mode, std::vector<EngineChoice> &list, std::string &turned_down) const;

  bool tf32_;
  std::vector<Descriptor> parts_; // what the graph is made of
  Descriptor graph_;
};

// A choice ready to run. Throws DnnError where the engine does not take the graph after all.
class ConvPlan {
public:
  ConvPlan(const BuiltGraph &graph, const EngineChoice &choice);

  int64_t workspace() const { return workspace_; } // bytes
  // Enqueues it. Allocates nothing on the device; addresses are multiples of 16, nullptr where the graph has no such operand.
  void run(void *const (&operand)[kRoles], void *workspace, void *queue);

private:
  std::vector<Descriptor> knobs_;
  Descriptor engine_, config_, plan_; // a plan may look at what it was made of
  int64_t workspace_ = 0;
  std::optional<Descriptor> pack_; // of the last run: a program runs with the same addresses again
  std::array<void *, kRoles + 1> packed_{};
};

} // namespace hetero
