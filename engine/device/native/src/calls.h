// calls.h: functions of the C ABI with the same implementation in every library.
#pragma once

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>

#include "account.h"
#include "kernel.h"
#include "status.h"

namespace hetero {

// Implements ht_kernel_calls.compile: checks the request, creates the kernel, and checks the kernel. `use` selects the
// device for the calling thread. Exceptions of factories pass through, with the name of the op before their text.
ht_kernel *compiled(int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in,
                    const ht_spec *out, int32_t num_out, int threads, const std::function<void()> &use);

// Implements ht_kernel_calls.desc.
void described(const ht_kernel *, ht_kernel_desc *);

// Copies a text to the buffer room, truncated to room_bytes bytes including the final NUL.
inline void copy_text(const std::string &text, char *room, size_t room_bytes) {
  if (room_bytes > 0) std::snprintf(room, room_bytes, "%s", text.c_str());
}

// Throws OutOfMemory unless the device can allocate `bytes` more bytes. limit is the device's memory in bytes.
inline void check_alloc(const Account &account, int64_t bytes, int64_t limit) {
  if (bytes < 0) throw Invalid("alloc: got " + std::to_string(bytes) + " bytes, want at least 0");
  if (bytes > limit - account.allocated())
    throw OutOfMemory("got " + std::to_string(account.allocated()) + " bytes, want " + std::to_string(bytes) +
                      " more, of " + std::to_string(limit));
}

// Returns the device memory in use and its peak, in bytes. Both come from the device's member `account`.
template <class Device> void memory_used(const Device *d, int64_t *allocated, int64_t *peak) {
  *allocated = d->account.allocated();
  *peak = d->account.peak();
}

inline void check_copy(int64_t bytes) {
  if (bytes < 0) throw Invalid("copy: got " + std::to_string(bytes) + " bytes, want at least 0");
}

// Waits for an event. Throws Timeout, and std::runtime_error if the run that should record the event failed.
template <class Event> void want_complete(Event &event, int64_t timeout_ns) {
  switch (event.wait(timeout_ns)) {
  case Event::complete: break;
  case Event::pending: throw Timeout("event: not complete after " + std::to_string(timeout_ns / 1000000) + " ms");
  case Event::failed:
    throw std::runtime_error("event: not recorded, because the program that records the event failed");
  }
}

// Returns the functions on events. Handle is ht_event; its member impl is an Event with the functions state, announce,
// settle and wait. Each library passes its own create and free, because they need the device.
template <class Handle, class Device>
ht_event_calls event_calls(ht_status (*create)(Device *, Handle **, ht_error *), void (*free)(Handle *)) {
  using Event = decltype(Handle::impl);
  ht_event_calls c{};
  c.create = create;
  c.done = [](Handle *e) -> int32_t { return e->impl.state() != Event::pending; };
  c.wait = [](Handle *e, int64_t timeout_ns, ht_error *error) {
    return guarded(error, [&] { want_complete(e->impl, timeout_ns); });
  };
  c.reset = [](Handle *e, ht_error *) {
    e->impl.announce();
    return HT_OK;
  };
  c.complete = [](Handle *e, ht_error *) {
    e->impl.settle(Event::complete);
    return HT_OK;
  };
  c.free = free;
  return c;
}

// Returns a table that contains the version, kind and build, but no functions.
inline ht_api empty_table(const char *kind, const char *build) {
  ht_api api{};
  api.abi_version = HT_ABI_VERSION;
  api.table_bytes = sizeof(ht_api);
  api.kind = kind;
  api.build = build;
  return api;
}

} // namespace hetero
