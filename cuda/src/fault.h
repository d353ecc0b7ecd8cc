// fault.h: bad ids and labels that a kernel finds in device memory. The host reports them when it waits for a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpu.h"

namespace hetero {

// A word that kernels on the device write and the host reads. A compiled kernel has one for each checked operand.
class Fault {
public:
  // Returns the error text for a bad element with this index and value.
  using Text = std::function<std::string(int64_t element, int64_t got)>;
  explicit Fault(Text text);
  uint64_t *word() const; // the word for mark; host and device use the same address

  struct State;

private:
  std::shared_ptr<State> state_;
};

// Throws the error of a fault on this device, if there is one, and clears it. Call it after waiting for a stream.
void check_faults(int device);

// Returns the error text for an id outside of its table.
Fault::Text bad_id(const char *operand, int64_t rows);

// Reports a bad element: writes its index + 1 and its value, 32 bits each, into the word. If several threads report a
// fault, any one of these faults may remain.
#if defined(__CUDACC__) || defined(HETERO_CUDA_SHIM)
__device__ inline void mark(uint64_t *word, int64_t element, int32_t got) {
  *reinterpret_cast<volatile uint64_t *>(word) =
      (static_cast<uint64_t>(element) + 1) << 32 | static_cast<uint32_t>(got);
}
#endif

} // namespace hetero
