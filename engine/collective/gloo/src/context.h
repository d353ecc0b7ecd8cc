// context.h: one rank's connections, and operations over them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "enter.h"
#include "hetero_gloo.h"
#include "parts.h"
#include "reduce.h"

namespace hetero {

class Context {
public:
  Context(int rank, int size);
  ~Context();

  // Takes ownership of the connected socket to another rank.
  void adopt(int rank, int socket);
  // Sets the path on which the ranks enter operations (enter.h). All ranks must call it between the same two
  // operations.
  void shape(int radix, size_t part_bytes);
  // Performs one operation and returns a hetero_gloo_status. After the return, nothing accesses the buffer.
  int run(hetero_gloo_call &call, std::byte *buffer, const int64_t *counts, uint8_t *missing) noexcept;
  void stop();
  // Closes the connections. Each takes some 10 ms.
  void disconnect() noexcept;

private:
  // A time limit that never expires, because Gloo has no wait without a limit.
  static constexpr std::chrono::hours without_limit{24 * 365};
  using Clock = std::chrono::steady_clock;
  struct Failure {
    int status;
    int rank;
    std::string text;
  };
  // A range of memory to send to a rank or to receive from it; nothing if bytes is 0.
  struct Piece {
    std::byte *data = nullptr;
    size_t bytes = 0;
  };
  using Pieces = std::vector<Piece>;
  using Buffers = std::vector<Buffer>;
  // An exchange: this rank sends one piece to every other rank, and receives one piece from each. Each list has one
  // entry per rank; this rank's entry is ignored.
  struct Exchange {
    Pieces send, receive;
    Buffers outgoing, incoming;
  };

  int attempt(hetero_gloo_call &call, std::byte *buffer, const int64_t *counts, uint8_t *missing) noexcept;
  void withdraw() noexcept;
  bool enter(std::byte *buffer, const int64_t *counts, uint8_t *missing);
  void enter_directly(std::byte *buffer, const int64_t *counts, bool small, uint8_t *missing);
  void enter_tree(std::byte *buffer, const int64_t *counts, bool small, uint8_t *missing);
  size_t part_bytes(int first, int last) const;
  void combine(std::byte *result, std::byte *buffer, Part wanted);
  void receive(Message &m);
  void send(Buffer &buffer, int rank, size_t data_bytes);
  void await(Buffer &buffer, int rank, bool sent);
  void note_missing(size_t i, uint8_t *missing);
  static bool has_arrived(gloo::transport::UnboundBuffer &buffer);

  void perform(std::byte *buffer, const int64_t *counts);
  void gather(std::byte *buffer, const int64_t *counts);
  void reduce_parts(std::byte *buffer, const int64_t *counts);
  Part part(int rank, const int64_t *counts) const { return part_of(call_->op, rank, size_, counts); }

  void exchange(Pieces send, Pieces receive);
  void post(Exchange &e, Pieces send, Pieces receive);
  void finish(Exchange &e);
  Failure broken(int rank, const char *what);
  Failure given_up(int rank);

  void watch();
  void look();
  void begin_watch(int64_t timeout_ms);
  bool end_watch();
  bool over();
  void abort_waits();

  const int me_, size_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> gloo_;
  uint64_t slot_ = 0; // incremented by every exchange, equally on all ranks
  std::atomic<bool> stopped_{false};

  std::mutex mutex_; // held while the buffers of exchanges or of the shape change, and while stop reads them
  Shape shape_;
  Exchange single_, scatters_[2], gathers_[2];
  Exchange *const exchanges_[5] = {&single_, &scatters_[0], &scatters_[1], &gathers_[0], &gathers_[1]};

  // State of the current operation.
  hetero_gloo_call *call_ = nullptr;
  size_t element_ = 1; // bytes
  ReduceKernel kernel_ = nullptr;
  std::vector<std::byte> scratch_;
  std::vector<Part> parts_; // contribution of each rank
  std::vector<const void *> sources_;

  // State of the watcher, a thread that aborts waits when the operation's time limit expires. Gloo's own time-out
  // cannot be used: it includes time in which this process was stopped, and it closes all connections.
  std::mutex watch_mutex_;
  std::condition_variable closed_;
  bool closing_ = false;
  bool under_way_ = false; // an operation is running, and its waits may be aborted
  bool limited_ = false, expired_ = false;
  Clock::time_point deadline_, looked_ = Clock::now();
  std::thread watcher_; // must be the last member, because the thread uses all other members
};

} // namespace hetero
