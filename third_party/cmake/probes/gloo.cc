// Checks that Gloo has everything that engine/collective/gloo/src uses.
#include <gloo/config.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <memory>

#include "opened.h"

int main(int count, char **) {
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
  std::shared_ptr<gloo::transport::Context> context = device->createContext(0, GLOO_VERSION_MAJOR + 2);
  auto *pair = dynamic_cast<gloo::transport::tcp::Pair *>(context->createPair(1).get());
  auto *tcp = dynamic_cast<gloo::transport::tcp::Device *>(device.get());
  if (pair && tcp) hetero::Opened::adopt(*pair, *tcp, hetero::Socket{-1});
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer = context->createUnboundBuffer(&count, sizeof count);
  buffer->send(1, 1, 0, sizeof count);
  buffer->recv(1, 1, 0, sizeof count);
  buffer->abortWaitSend();
  buffer->abortWaitRecv();
  context->getPair(1)->close();
  return buffer->waitRecv(std::chrono::milliseconds(1)) && buffer->waitSend(std::chrono::milliseconds(1));
}
