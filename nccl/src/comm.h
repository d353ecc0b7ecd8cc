// comm.h: one rank's endpoint of an NCCL communicator.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "functions.h"

namespace hetero {

// The reason why a call ended early.
struct Ended {
  int status; // hetero_nccl_status
  std::string text;
};

class Comm {
public:
  explicit Comm(const hetero_nccl_options &);
  ~Comm(); // the caller must call end() first
  Comm(const Comm &) = delete;

  // connect and run throw Ended or the exceptions of CUDA's checks. After an exception, no operation is running.
  void connect(int64_t timeout_ns);
  void run(const hetero_nccl_call &call, void *buffer, const int64_t *counts);
  void stop() { stopped_ = true; }
  // Leaves the communicator in order with the other ranks, within a short time limit.
  void finalize();
  // Aborts running operations. Throws Ended if some of them never end.
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
  bool let_go() const;    // whether no operation is left on the GPU
  bool came_back() const; // whether the call that ends the communicator has returned

  const hetero_nccl_options options_;
  const Functions &nccl_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
  std::atomic<bool> stopped_{false};
  int64_t deadline_ns_ = 0; // deadline of the current call; 0: no limit

  // Name of the call that ends the communicator ("" until that call is made), and whether the call has returned.
  std::string ends_;
  std::shared_ptr<std::atomic<bool>> over_;
};

} // namespace hetero
