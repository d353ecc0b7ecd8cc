// comm.h: one rank's end of an NCCL communicator.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "functions.h"

namespace hetero {

// Why a call ended early.
struct Ended {
  int status; // hetero_nccl_status
  std::string text;
};

class Comm {
public:
  explicit Comm(const hetero_nccl_options &);
  ~Comm(); // end comes before
  Comm(const Comm &) = delete;

  // Both throw Ended, and what CUDA's checks throw; then nothing runs any more.
  void connect(int64_t timeout_ns);
  void run(hetero_nccl_call &call, void *buffer, const int64_t *counts);
  void stop() { stopped_ = true; }
  // Leaves in order, for no longer than a moment.
  void finalize();
  // Gives up whatever runs. Throws Ended where something is left that does not end.
  void end();

private:
  template <class Body> void guarded_call(int64_t timeout_ns, Body body);
  void launch(const hetero_nccl_call &call, char *buffer, const int64_t *counts);
  void gather(char *buffer, const int64_t *counts, size_t element);
  void scatter(char *buffer, const int64_t *counts, size_t element, ncclDataType_t type, ncclRedOp_t op);
  void grouped(const std::function<void()> &calls);
  void noted(ncclResult_t result, const char *what);
  void settle(ncclResult_t result, const char *what);
  template <class Ready> void wait(Ready ready);
  ncclResult_t state();
  [[noreturn]] void fail(ncclResult_t result, const std::string &what);
  void abort();
  void begin_end(const char *what, ncclResult_t (*call)(ncclComm_t));
  template <class Ready> static bool in_time(Ready ready);
  bool let_go() const;    // nothing of it is on the GPU any more
  bool came_back() const; // from what ends it

  const hetero_nccl_options options_;
  const Functions &nccl_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begun_ = nullptr, done_ = nullptr;
  std::atomic<bool> stopped_{false};
  int64_t deadline_ns_ = 0; // of the call under way; 0: none

  // What ends the communicator, once it has been called, and whether it has come back.
  std::string ends_;
  std::shared_ptr<std::atomic<bool>> over_;
};

} // namespace hetero
