// enter.h: the first phase of an operation. The ranks compare signatures, and send the data of small operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "hetero_gloo.h"

namespace hetero {

// The start of each message of the first phase. If the signatures agree, the data of a small operation follows.
struct Head {
  hetero_signature op;     // signature of the sender or, on the way down the tree, of rank 0
  int64_t other;           // rank whose signature differs from op, or -1
  hetero_signature theirs; // signature of rank other
};

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// A message to or from a neighbour. All operations use the same memory.
struct Message {
  int rank = -1;                     // the neighbour
  int first = 0, last = 0;           // the message contains data of the ranks from first to last-1
  size_t bytes = 0;                  // size of the memory
  std::unique_ptr<std::byte[]> data; // must be freed after buffer, which refers to this memory
  Buffer buffer;
  Buffer reply; // message to the neighbour, in the memory of Shape::up or Shape::down; errors concern only this rank

  void open(gloo::transport::Context &context, size_t data_bytes) {
    bytes = sizeof(Head) + data_bytes;
    data.reset(new std::byte[bytes]); // not initialised, so that pages that no message reaches are never allocated
    buffer = another(context);
  }
  Buffer another(gloo::transport::Context &context) { return context.createUnboundBuffer(data.get(), bytes); }
  Head &head() { return *reinterpret_cast<Head *>(data.get()); }
  std::byte *payload() { return data.get() + sizeof(Head); }
};

// The neighbours of a rank in the first phase.
//
// With radix 0, every rank sends its signature and data to all other ranks. The list `below` then contains all other
// ranks. With radix k, the ranks form a tree with rank 0 as the root. To get the number of a rank's parent, write the
// rank's number in base k and replace the lowest nonzero digit by 0. Each subtree therefore has consecutive ranks.
// Signatures and data go up, and the result comes down. There are 2·(n-1) messages in total, on 2·log_k n hops with up
// to k-1 messages each.
struct Shape {
  int radix = 0;
  size_t part_bytes = 0;      // maximum contribution of a rank to a small operation
  Message up;                 // to the parent; with radix 0: to all other ranks
  Message down;               // from the parent, then to the ranks below; unused with radix 0
  std::vector<Message> below; // from the ranks that send to this rank; freed first, because replies use up and down

  Shape() = default;
  Shape(gloo::transport::Context &context, int rank, int size, int radix, size_t part_bytes);
};

} // namespace hetero
