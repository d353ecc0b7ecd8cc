// api.cc: the function table.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <system_error>

#include "check.h"
#include "comm.h"
#include "status.h"

struct hetero_nccl_comm {
  hetero::Comm impl;
};

namespace {

int32_t say(char *error, int32_t status, const char *text) {
  std::snprintf(error, HETERO_NCCL_TEXT, "%s", text);
  return status;
}

// While an object of this class exists, new threads block all signals, because the signal handlers of Go's runtime need
// Go's stacks. Signals that report faults stay unblocked.
class NoSignals {
public:
  NoSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_;
};

// Runs f. Converts its exception to a status with a text.
template <class F> int32_t guarded(char *error, F f) noexcept {
  NoSignals quiet;
  try {
    f();
    return HETERO_NCCL_OK;
  } catch (const hetero::Ended &e) {
    return say(error, e.status, e.text.c_str());
  } catch (const hetero::Unavailable &e) {
    return say(error, HETERO_NCCL_UNAVAILABLE, e.what());
  } catch (const std::bad_alloc &) {
    return say(error, HETERO_NCCL_FAILED, "the host is out of memory");
  } catch (const std::system_error &e) { // failed to create a thread
    return say(error, HETERO_NCCL_FAILED, e.what());
  } catch (const std::exception &e) {
    return say(error, HETERO_NCCL_DEVICE, e.what());
  } catch (...) {
    return say(error, HETERO_NCCL_FAILED, "unknown exception");
  }
}

int32_t library(hetero_nccl_facts *facts, char *error) {
  return guarded(error, [&] {
    const hetero::Functions &f = hetero::nccl();
    facts->version = f.version;
    facts->built_for = NCCL_VERSION_CODE;
    std::snprintf(facts->path, sizeof facts->path, "%s", f.library.path().c_str());
  });
}

int32_t bus_id(int32_t device, char *text, char *error) {
  return guarded(error, [&] { hetero::check(cudaDeviceGetPCIBusId(text, 32, device), "query the bus id of a GPU"); });
}

int32_t unique_id(uint8_t *id, char *error) {
  return guarded(error, [&] {
    ncclUniqueId made;
    const ncclResult_t r = hetero::nccl().GetUniqueId(&made);
    if (r != ncclSuccess) {
      const char *more = hetero::nccl().GetLastError(nullptr);
      throw std::runtime_error(std::string("ncclGetUniqueId: ") + hetero::nccl().GetErrorString(r) + ": " +
                               (more ? more : ""));
    }
    std::copy_n(reinterpret_cast<const uint8_t *>(&made), sizeof made, id);
  });
}

int32_t create(const hetero_nccl_options *options, hetero_nccl_comm **comm, char *error) {
  return guarded(error, [&] { *comm = new hetero_nccl_comm{hetero::Comm(*options)}; });
}

int32_t connect(hetero_nccl_comm *c, int64_t timeout_ns, char *error) {
  return guarded(error, [&] { c->impl.connect(timeout_ns); });
}

int32_t run(hetero_nccl_comm *c, hetero_nccl_call *call, void *buffer, const int64_t *counts) {
  call->text[0] = 0;
  return guarded(call->text, [&] { c->impl.run(*call, buffer, counts); });
}

void stop(hetero_nccl_comm *c) { c->impl.stop(); }

int32_t close(hetero_nccl_comm *c, int32_t orderly, char *error) {
  const std::unique_ptr<hetero_nccl_comm> ends(c);
  char unheard[HETERO_NCCL_TEXT];
  if (orderly) guarded(unheard, [&] { c->impl.finalize(); }); // if finalize fails, the destructor aborts
  return guarded(error, [&] { c->impl.end(); });
}

} // namespace

extern "C" __attribute__((visibility("default"))) const hetero_nccl_api *hetero_nccl_get_api(uint32_t version) {
  static const hetero_nccl_api api = {
      HETERO_NCCL_VERSION, library, bus_id, unique_id, create, connect, run, stop, close};
  return version == HETERO_NCCL_VERSION ? &api : nullptr;
}
