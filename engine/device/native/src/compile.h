// compile.h: what the C ABI's functions on kernels and events do, whatever the device.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "kernel.h"
#include "status.h"

namespace hetero {

// What ht_api.compile answers: a checked kernel for a checked request. use chooses the device for the calling thread. Throws as
// factories do; the text begins with the op's name.
ht_kernel *compiled(int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in,
                    const ht_spec *out, int32_t num_out, int threads, const std::function<void()> &use);

ht_kernel_desc described(const ht_kernel &kernel);

// Waits for an event of the device. Throws Timeout, and std::runtime_error where the run that was to record it failed.
template <class Event> void want_complete(Event &event, int64_t timeout_ns) {
  switch (event.wait(timeout_ns)) {
  case Event::complete: break;
  case Event::pending: throw Timeout("event: not complete after " + std::to_string(timeout_ns / 1000000) + " ms");
  case Event::failed: throw std::runtime_error("event: the program that was to record it failed");
  }
}

} // namespace hetero
