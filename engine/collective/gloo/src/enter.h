// enter.h: the first phase of an operation: the ranks compare signatures, and a small operation takes its data along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "hetero_gloo.h"

namespace hetero {

// The start of each message of the first phase. The data of a small operation follows it, if no ranks differ.
struct Head {
  hetero_signature op;     // of the sender; on the way down the tree: of rank 0
  int64_t other;           // a rank whose signature differs from op, or -1
  hetero_signature theirs; // the signature of other
};

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// A message to or from a neighbour, in memory that all operations use.
struct Message {
  int rank = -1;                     // the neighbour
  int first = 0, last = 0;           // the ranks from first to before last have data in this message
  size_t bytes = 0;                  // of the memory
  std::unique_ptr<std::byte[]> data; // freed after buffer, which refers to it
  Buffer buffer;
  Buffer reply; // to the neighbour, in the memory of Shape::up or Shape::down; an error of it concerns no other rank

  void open(gloo::transport::Context &context, size_t data_bytes) {
    bytes = sizeof(Head) + data_bytes;
    data.reset(new std::byte[bytes]); // without initialisation: a page that no message reaches takes no memory
    buffer = another(context);
  }
  Buffer another(gloo::transport::Context &context) { return context.createUnboundBuffer(data.get(), bytes); }
  Head &head() { return *reinterpret_cast<Head *>(data.get()); }
  std::byte *payload() { return data.get() + sizeof(Head); }
};

// The neighbours of a rank in the first phase.
//
// radix 0: every rank sends its signature and data to all ranks (below has all other ranks).
// radix k: a tree of messages with rank 0 on top. The parent of a rank is its number with the lowest digit above 0, in
// base k, set to 0; so each subtree has consecutive ranks. Signatures and data go up, the result comes down: 2·(n-1)
// messages in all, and 2·log_k n hops with up to k-1 messages each.
struct Shape {
  int radix = 0;
  size_t part_bytes = 0;      // the most bytes that a rank contributes to an operation that takes its data along
  Message up;                 // to the parent; with radix 0: to all other ranks
  Message down;               // from the parent, and to the ranks below; unused with radix 0
  std::vector<Message> below; // from the ranks that send to this rank; freed first, because replies refer to the above

  Shape() = default;
  Shape(gloo::transport::Context &context, int rank, int size, int radix, size_t part_bytes);
};

} // namespace hetero
