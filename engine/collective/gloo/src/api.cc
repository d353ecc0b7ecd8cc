// api.cc: the function table.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/config.h>

#include "context.h"

struct hetero_gloo_context {
  hetero::Context impl;
};

namespace {

// The exit code of a lost connection.
constexpr int communication_lost = 5;

[[noreturn]] void end_process(const char *reason) {
  std::fprintf(stderr,
               "Gloo ends this rank, because a message of another rank is damaged: bytes changed between the machines, "
               "and Gloo has no checksums. Gloo reports: %s\n",
               reason);
  std::fflush(stderr);
  _exit(communication_lost);
}

std::terminate_handler terminate_before;

// end_in_order ends the process when an exception leaves a thread of Gloo. Gloo throws such an exception if a message
// is invalid, and no code can catch it. Without end_in_order, the process would end with SIGABRT and print the stacks
// of all goroutines.
[[noreturn]] void end_in_order() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const gloo::EnforceNotMet &e) {
    end_process(e.what());
  } catch (const gloo::Exception &e) {
    end_process(e.what());
  } catch (...) { // an exception of unknown type
  }
  if (terminate_before) terminate_before();
  std::abort();
}

void catch_gloo() {
  static const bool done = [] {
    terminate_before = std::set_terminate(end_in_order);
    return true;
  }();
  (void)done;
}

// guarded calls f and returns its exception as an error code with a text. It also blocks signals in the threads that
// Gloo starts, because signal handlers of Go's runtime need Go's stacks. Signals that report faults remain unblocked.
template <class F> int32_t guarded(char *error, F f) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int32_t status = 0;
  try {
    f();
  } catch (const std::exception &e) {
    std::snprintf(error, HETERO_GLOO_TEXT, "%s", e.what());
    status = 1;
  } catch (...) {
    std::snprintf(error, HETERO_GLOO_TEXT, "unknown exception");
    status = 1;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

// kept calls f and ignores its exceptions, for functions that cannot report errors.
template <class F> void kept(F f) noexcept {
  try {
    f();
  } catch (...) { // there is no way to report the exception
  }
}

#define HETERO_TEXT_OF(number) #number
#define HETERO_VERSION_TEXT(major, minor, patch)                                                                       \
  HETERO_TEXT_OF(major) "." HETERO_TEXT_OF(minor) "." HETERO_TEXT_OF(patch)

const char *description() { return HETERO_VERSION_TEXT(GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH); }

int32_t open(int32_t rank, int32_t size, hetero_gloo_context **c, char *error) {
  return guarded(error, [&] {
    catch_gloo();
    *c = new hetero_gloo_context{{rank, size}};
  });
}

int32_t adopt(hetero_gloo_context *c, int32_t rank, int32_t socket, char *error) {
  return guarded(error, [&] { c->impl.adopt(rank, socket); });
}

int32_t shape(hetero_gloo_context *c, int32_t radix, int64_t part_bytes, char *error) {
  return guarded(error, [&] { c->impl.shape(radix, static_cast<size_t>(part_bytes)); });
}

int32_t run(hetero_gloo_context *c, hetero_gloo_call *call, void *buffer, const int64_t *counts, uint8_t *missing) {
  return c->impl.run(*call, static_cast<std::byte *>(buffer), counts, missing);
}

void stop(hetero_gloo_context *c) {
  kept([&] { c->impl.stop(); });
}

void disconnect(hetero_gloo_context *c) { c->impl.disconnect(); }

void close(hetero_gloo_context *c) {
  kept([&] { delete c; });
}

} // namespace

extern "C" __attribute__((visibility("default"))) const hetero_gloo_api *hetero_gloo_get_api(uint32_t version) {
  static const hetero_gloo_api api = {HETERO_GLOO_VERSION, description, open, adopt, shape, run, stop,
                                      disconnect,          close};
  return version == HETERO_GLOO_VERSION ? &api : nullptr;
}
