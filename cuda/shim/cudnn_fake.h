// cudnn_fake.h: common declarations of the fake cuDNN's two files.
//
// HETERO_SHIM_CUDNN changes its behaviour, words separated by commas:
//
//	version8     it reports cuDNN 8
//	no-engines   heuristics offer nothing
//	single       every engine accepts only single convolutions
//	aligned      every engine needs channels that are multiples of 16 bytes
//	fail         every execution fails
#pragma once

#include <cudnn.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fake {

struct Object;
using Handle = std::shared_ptr<Object>;

struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::vector<int64_t> numbers; // values of every type except the next two
  std::vector<float> floats;
  std::vector<Handle> objects;
};

// A descriptor: attributes, and whether it is finalised.
struct Object {
  cudnnBackendDescriptorType_t type;
  bool final = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;

  bool has(cudnnBackendAttributeName_t n) const { return attributes.count(n) > 0; }
  const std::vector<int64_t> &list(cudnnBackendAttributeName_t n) const { return attributes.at(n).numbers; }
  int64_t number(cudnnBackendAttributeName_t n) const { return list(n).at(0); }
  const Object &object(cudnnBackendAttributeName_t n, size_t i = 0) const { return *attributes.at(n).objects.at(i); }
  size_t size(cudnnBackendAttributeName_t n) const { return attributes.at(n).objects.size(); }
  void put(cudnnBackendAttributeName_t n, cudnnBackendAttributeType_t t, std::vector<int64_t> numbers) {
    attributes[n] = {t, std::move(numbers), {}, {}};
  }
};

struct Refused {
  cudnnStatus_t status;
  std::string why;
};

bool setting(const char *word); // whether HETERO_SHIM_CUDNN contains the word

// A convolution y = x * w. In a gradient pass, x, w and y also name the gradients of these tensors.
struct Conv {
  const Object *conv, *x, *w, *y;
  // bias is the operand of a second operation, if there is one. out is the result of the last operation.
  const Object *bias = nullptr, *out;
  cudnnBackendDescriptorType_t pass;
};
Conv conv_of_operation(const Object &operation);
void check_conv(const Conv &c);          // throws Refused if shapes do not fit
Conv conv_of_graph(const Object &graph); // throws Refused if no engine supports the pattern

// cudnn_engines.cc
constexpr int64_t kEngines = 6, kCompiled = 3; // kCompiled: the engine that is compiled on creation
std::vector<cudnnBackendNumericalNote_t> notes_of(int64_t engine, const Object &graph);
std::vector<int64_t> offered(cudnnBackendHeurMode_t mode);         // engines, best first
std::vector<std::pair<int64_t, int64_t>> knobs_of(int64_t engine); // type and largest value of each setting
int64_t plan_workspace(int64_t engine, const Object &graph); // throws Refused if the engine does not support the graph
void execute(const Handle &plan, const Handle &pack, cudaStream_t stream); // throws Refused if an address is missing

} // namespace fake
