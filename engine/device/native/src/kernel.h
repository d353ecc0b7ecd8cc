// kernel.h: what every kernel of a native device is, and how an op finds its kernel.
//
// A kernel is made once for fixed specs (the constructor does all the thinking) and run many times; run()
// allocates nothing. Errors while making one are thrown as Unsupported or Invalid and become a status at the C
// boundary (status.h); run() throws only on device failure.
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
  void *queue; // of a device that runs behind the caller: where to enqueue the launch
};

struct Kernel {
  Specs in, out;         // as wanted: layouts resolved, bytes filled
  int64_t workspace = 0; // bytes, 64-byte aligned address
  std::vector<ht_alias> inplace;
  virtual ~Kernel() = default;
  virtual void run(const Args &) = 0;
};

// What a factory gets: the request of ht_api.compile. in and out may hold HT_LAYOUT_ANY.
struct Request {
  ht_op op;
  const void *params; // the op's parameter struct, size already checked; valid during the call only
  Specs in, out;
  int threads; // of a device that has some
};

using Factory = std::unique_ptr<Kernel> (*)(const Request &);

// The factory of each op. Defined in ops.cc: one line an op.
Factory factory_of(ht_op op);

} // namespace hetero

// The object of the C ABI.
struct ht_kernel {
  ht_op op;
  std::unique_ptr<hetero::Kernel> impl;
  ht_device *device = nullptr; // where freeing needs it
};
