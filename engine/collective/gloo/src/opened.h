// opened.h: gives a pair of Gloo a socket that is already connected.
//
// The build compiles this file to find out whether the system's Gloo can be used (third_party/cmake/probes/gloo.cc). It
// cannot check the version number, because all versions of Gloo have the same one.
#pragma once

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

namespace hetero {

inline gloo::IoException failed(const char *what) {
  return gloo::IoException(std::string(what) + ": " + std::strerror(errno));
}

// Socket owns a file descriptor, and closes it unless take was called.
struct Socket {
  int fd;
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  int take() { return std::exchange(fd, -1); }
};

// Opened gives a pair a socket that is already connected. Gloo itself would accept any connection to its port as the
// other rank. Opened accesses protected members, through a class derived from Gloo's. With old versions of Gloo, such
// as that of Debian 11, this file does not compile, because these members are private.
struct Opened : gloo::transport::tcp::Pair {
  using Pair = gloo::transport::tcp::Pair;
  static void adopt(Pair &pair, gloo::transport::tcp::Device &device, Socket &&socket) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(socket.fd, reinterpret_cast<sockaddr *>(&peer), &length) < 0)
      throw failed("query the other rank's address");
    std::lock_guard<std::mutex> lock(pair.*(&Opened::m_));
    const auto state = pair.*(&Opened::state_);
    if (state == CONNECTING || state == CONNECTED || state == CLOSED)
      throw gloo::IoException("the rank is already connected");
    int &own = pair.*(&Opened::fd_);
    if (own >= 0) { // versions of Gloo before May 2023 open one listening socket per pair, not per device
      device.unregisterDescriptor(own, &pair);
      ::close(own);
      own = -1;
    }
    pair.*(&Opened::peer_) = gloo::transport::tcp::Address(peer);
    own = socket.take();
    device.registerDescriptor(own, EPOLLIN, &pair);
    (pair.*(&Opened::changeState))(CONNECTED);
  }
};

} // namespace hetero
