// context.cc: connections, and concurrent sending and receiving between all ranks.
#include "context.h"

#include <fcntl.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <random>
#include <type_traits>
#include <utility>

#include "opened.h"

namespace hetero {

namespace {

// A piece is sent in messages of at most this many bytes. A larger value delays an abort, because an aborted rank waits
// for the end of the current message.
constexpr size_t message_bytes = 4 << 20;

// for_messages calls f with the offset and the number of bytes of every message of a piece.
template <class Piece, class F> void for_messages(const Piece &piece, F f) {
  for (size_t from = 0; from < piece.bytes; from += message_bytes) f(from, std::min(message_bytes, piece.bytes - from));
}

// private_address returns a random loopback address, which port scans do not reach. A Gloo pair listens on this address
// until it gets its socket. Some versions of Gloo abort the process if a connection to such a port is reset.
std::string private_address() {
  std::random_device random;
  auto part = [&] { return std::to_string(1 + random() % 254); };
  return "127." + part() + "." + part() + "." + part();
}

// If the watcher has not read the clock for this long, the process or the machine was stopped. Such a pause does not
// count towards the time limit. With a larger value, longer pauses count towards the time limit. With a smaller value,
// delays on a busy machine extend the limit.
constexpr std::chrono::milliseconds slept{1000};
// Interval at which the watcher reads the clock. With a larger value, time-outs are detected later.
constexpr std::chrono::milliseconds look_every{100};
// Interval at which the watcher aborts all waits, until the operation has ended. It repeats the abort because a wait
// may begin just after an abort.
constexpr std::chrono::milliseconds abort_every{5};

} // namespace

Context::Context(int rank, int size) : me_(rank), size_(size) {
  gloo::transport::tcp::attr attr;
  attr.hostname = private_address();
  device_ = gloo::transport::tcp::CreateDevice(attr);
  gloo_ = device_->createContext(rank, size);
  watcher_ = std::thread([this] { watch(); });
}

void Context::adopt(int rank, int fd) {
  Socket socket{fd};
  int flags = fcntl(fd, F_GETFL), on = 1;
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) throw failed("make the socket non-blocking");
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0) throw failed("set TCP_NODELAY");
  auto *pair = dynamic_cast<gloo::transport::tcp::Pair *>(gloo_->createPair(rank).get());
  auto *device = dynamic_cast<gloo::transport::tcp::Device *>(device_.get());
  if (!pair || !device) throw gloo::IoException("Gloo does not use TCP for its connections");
  Opened::adopt(*pair, *device, std::move(socket));
}

Context::~Context() {
  {
    std::lock_guard<std::mutex> lock(watch_mutex_);
    closing_ = true;
  }
  closed_.notify_one();
  watcher_.join();
  withdraw();
  disconnect();
}

// withdraw cancels all posted buffers. A buffer's destructor waits until Gloo's thread no longer accesses the memory.
// This takes at most until the end of one message.
void Context::withdraw() noexcept {
  std::array<Exchange, std::extent<decltype(exchanges_)>::value> withdrawn; // destroyed after the lock is released
  Shape shape;
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < withdrawn.size(); i++) std::swap(withdrawn[i], *exchanges_[i]);
  std::swap(shape, shape_);
}

void Context::disconnect() noexcept {
  for (int r = 0; gloo_ && r < size_; r++) {
    try {
      if (auto &pair = gloo_->getPair(r); pair && r != me_) pair->close();
    } catch (...) { // close the remaining pairs in any case
    }
  }
}

void Context::stop() {
  stopped_ = true;
  abort_waits();
}

void Context::abort_waits() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Exchange *e : exchanges_)
    for (auto *list : {&e->outgoing, &e->incoming})
      for (auto &buffer : *list)
        if (buffer) {
          buffer->abortWaitSend();
          buffer->abortWaitRecv();
        }
  auto abort = [](Message &m) {
    for (Buffer *buffer : {&m.buffer, &m.reply}) {
      if (!*buffer) continue;
      (*buffer)->abortWaitSend();
      (*buffer)->abortWaitRecv();
    }
  };
  for (Message &m : shape_.below) abort(m);
  abort(shape_.up);
  abort(shape_.down);
}

void Context::watch() {
  std::unique_lock<std::mutex> lock(watch_mutex_);
  while (!closing_) {
    look();
    const bool abort = under_way_ && (expired_ || stopped_);
    if (abort) {
      lock.unlock();
      abort_waits();
      lock.lock();
    }
    if (!closing_) closed_.wait_for(lock, abort ? abort_every : look_every);
  }
}

// look checks whether the time limit has expired. The caller must hold watch_mutex_.
void Context::look() {
  const auto now = Clock::now();
  if (now - looked_ > slept) deadline_ += now - looked_;
  looked_ = now;
  expired_ = expired_ || (under_way_ && limited_ && now >= deadline_);
}

void Context::begin_watch(int64_t timeout_ms) {
  std::lock_guard<std::mutex> lock(watch_mutex_);
  look(); // reads the clock, so that a pause before the operation does not extend its limit
  limited_ = timeout_ms > 0;
  deadline_ = looked_ + std::chrono::milliseconds(timeout_ms);
  expired_ = false;
  under_way_ = true;
}

// end_watch reports whether the time limit had expired.
bool Context::end_watch() {
  std::lock_guard<std::mutex> lock(watch_mutex_);
  look();
  under_way_ = false;
  return expired_;
}

bool Context::over() {
  if (stopped_) return true;
  std::lock_guard<std::mutex> lock(watch_mutex_);
  return expired_;
}

int Context::run(hetero_gloo_call &call, std::byte *buffer, const int64_t *counts, uint8_t *missing) noexcept {
  int status = attempt(call, buffer, counts, missing);
  if (status != HETERO_GLOO_OK) {
    end_watch();
    withdraw(); // the caller owns the buffer again
  }
  return status;
}

int Context::attempt(hetero_gloo_call &call, std::byte *buffer, const int64_t *counts, uint8_t *missing) noexcept {
  call_ = &call;
  call.op.parts = hash_of(counts, size_);
  try {
    begin_watch(call.timeout_ms);
    const bool complete = size_ > 1 && enter(buffer, counts, missing);
    if (!complete) perform(buffer, counts);
    end_watch();
    return HETERO_GLOO_OK;
  } catch (const Failure &f) {
    call.rank = f.rank;
    std::strncpy(call.text, f.text.c_str(), sizeof call.text - 1);
    return f.status;
  } catch (const std::exception &e) { // out of memory
    call.rank = me_;
    std::strncpy(call.text, e.what(), sizeof call.text - 1);
  } catch (...) {
    call.rank = me_;
    std::strncpy(call.text, "unknown exception", sizeof call.text - 1);
  }
  return HETERO_GLOO_PEER;
}

void Context::exchange(Pieces send, Pieces receive) {
  post(single_, std::move(send), std::move(receive));
  finish(single_);
}

// post starts an exchange. All ranks post the same exchanges in the same order.
void Context::post(Exchange &e, Pieces send, Pieces receive) {
  slot_++;
  auto make = [&](const Pieces &pieces) {
    Buffers list(pieces.size());
    for (size_t r = 0; r < pieces.size(); r++)
      if (static_cast<int>(r) != me_ && pieces[r].bytes)
        list[r] = gloo_->createUnboundBuffer(pieces[r].data, pieces[r].bytes);
    return list;
  };
  Buffers outgoing = make(send), incoming = make(receive);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    e.outgoing.swap(outgoing);
    e.incoming.swap(incoming);
  }
  e.send = std::move(send);
  e.receive = std::move(receive);
  for (int i = 1; i < size_; i++) {
    int r = (me_ + i) % size_;
    auto index = static_cast<size_t>(r);
    try {
      for_messages(e.receive[index], [&](size_t from, size_t n) { e.incoming[index]->recv(r, slot_, from, n); });
      for_messages(e.send[index], [&](size_t from, size_t n) { e.outgoing[index]->send(r, slot_, from, n); });
    } catch (const std::exception &error) {
      throw broken(r, error.what());
    }
  }
}

// finish waits until all data is sent and received.
void Context::finish(Exchange &e) {
  for (int i = 1; i < size_; i++) {
    int r = (me_ + i) % size_;
    auto index = static_cast<size_t>(r);
    try {
      // The wait does not detect an abort that came before it, so over is called first.
      for_messages(e.receive[index], [&](size_t, size_t) {
        if (over() || !e.incoming[index]->waitRecv(without_limit)) throw given_up(r);
      });
      for_messages(e.send[index], [&](size_t, size_t) {
        if (over() || !e.outgoing[index]->waitSend(without_limit)) throw given_up(r);
      });
    } catch (const Failure &) {
      throw;
    } catch (const std::exception &error) {
      throw broken(r, error.what());
    }
  }
}

// broken returns the failure that an exception of Gloo indicates.
Context::Failure Context::broken(int rank, const char *what) {
  if (stopped_) return {HETERO_GLOO_STOPPED, rank, what};
  return {end_watch() ? HETERO_GLOO_TIMEOUT : HETERO_GLOO_PEER, rank, what};
}

// given_up returns the failure that an aborted wait indicates.
Context::Failure Context::given_up(int rank) {
  return {stopped_ ? HETERO_GLOO_STOPPED : HETERO_GLOO_TIMEOUT, rank, ""};
}

} // namespace hetero
