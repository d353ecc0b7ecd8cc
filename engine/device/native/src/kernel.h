// kernel.h: the base class of every kernel of a native device, and the lookup of an op's kernel.
//
// A kernel is created once for fixed specs, and run many times. The constructor makes all decisions; run() allocates
// nothing. Creation throws Unsupported or Invalid, which become a status at the C boundary (status.h). run() throws
// only if the device fails.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hetero_device.h"

namespace hetero {

struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Invalid : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Specs = std::vector<ht_spec>;

// Operands of one launch. in and out are addresses in the order of the kernel's specs.
struct Args {
  void *const *in;
  void *const *out;
  void *workspace;
  void *queue; // the queue on which run enqueues its work; nullptr unless the device is asynchronous
};

struct Kernel {
  Specs in, out;         // final: layouts resolved, bytes set
  int64_t workspace = 0; // bytes; the address is a multiple of 64
  std::vector<ht_alias> inplace;
  virtual ~Kernel() = default;
  virtual void run(const Args &) = 0;
};

// The input of a factory: the request of ht_kernel_calls.compile. Specs in `in` and `out` may have HT_LAYOUT_ANY.
struct Request {
  ht_op op;
  const void *params; // the op's parameter struct, size already checked; valid during the call only
  Specs in, out;
  int threads; // number of threads of a CPU device
};

using Factory = std::unique_ptr<Kernel> (*)(const Request &);

// Returns the factory of an op.
Factory factory_of(ht_op op);

} // namespace hetero

// The kernel object of the C ABI.
struct ht_kernel {
  ht_op op;
  std::unique_ptr<hetero::Kernel> impl;
  ht_device *device = nullptr; // only set on devices that need it to free the kernel
};
