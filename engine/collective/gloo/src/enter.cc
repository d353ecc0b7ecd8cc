// enter.cc: the first phase of an operation. Gloo must never receive a message that is longer than expected, so
// operations of all sizes begin with the same messages.
#include "enter.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "context.h"

namespace hetero {

namespace {

bool differs(const hetero_signature &a, const hetero_signature &b) { return std::memcmp(&a, &b, sizeof a) != 0; }

} // namespace

Shape::Shape(gloo::transport::Context &context, int rank, int size, int radix, size_t part_bytes)
    : radix(radix), part_bytes(part_bytes) {
  auto listen = [&](int from, int last) {
    Message m;
    m.rank = from;
    m.first = from;
    m.last = last;
    m.open(context, part_bytes * static_cast<size_t>(last - from));
    below.push_back(std::move(m));
  };
  up.first = rank;
  up.last = rank + 1;
  if (!radix) {
    for (int i = 1; i < size; i++) listen((rank + i) % size, (rank + i) % size + 1);
    up.open(context, part_bytes);
    for (Message &m : below) m.reply = up.another(context);
    return;
  }
  int64_t digit = 1; // place value of the lowest nonzero digit of rank in base radix; for rank 0, at least size
  for (; digit < size && rank % (digit * radix) == 0; digit *= radix)
    for (int64_t child = rank + digit; child < size && child < rank + digit * radix; child += digit)
      listen(static_cast<int>(child), static_cast<int>(std::min<int64_t>(size, child + digit)));
  up.last = static_cast<int>(std::min<int64_t>(size, rank + digit));
  if (rank) {
    up.rank = down.rank = static_cast<int>(rank - rank / digit % radix * digit);
    up.open(context, part_bytes * static_cast<size_t>(up.last - rank));
  }
  down.open(context, part_bytes * static_cast<size_t>(size));
  for (Message &m : below) m.reply = down.another(context);
}

void Context::shape(int radix, size_t part_bytes) {
  Shape fresh(*gloo_, me_, size_, radix, part_bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  std::swap(shape_, fresh);
}

// enter exchanges the signatures of the operation with all ranks. If it returns true, the operation was small and is
// complete.
bool Context::enter(std::byte *buffer, const int64_t *counts, uint8_t *missing) {
  const hetero_signature &op = call_->op;
  element_ = element_bytes(op.dtype);
  kernel_ = reduce_kernel(op.dtype, op.reduce);
  const size_t all = static_cast<size_t>(op.elements) * element_;
  const bool reduces = op.kind == HETERO_ALL_REDUCE || op.kind == HETERO_REDUCE_SCATTER;
  parts_.clear();
  size_t longest = 0, before = 0;
  for (int r = 0; r < size_; r++) {
    Part p{0, all}; // contribution of rank r
    if (op.kind == HETERO_ALL_GATHER) {
      p = {before, static_cast<size_t>(counts[r]) * element_};
      before += p.bytes;
    } else if (!reduces) {
      p = part(r, counts);
    }
    longest = std::max(longest, p.bytes);
    parts_.push_back(p);
  }
  const bool small = all && longest <= shape_.part_bytes;
  slot_++;
  if (shape_.radix)
    enter_tree(buffer, counts, small, missing);
  else
    enter_directly(buffer, counts, small, missing);
  return small || !all;
}

size_t Context::part_bytes(int first, int last) const {
  size_t bytes = 0;
  for (int r = first; r < last; r++) bytes += parts_[static_cast<size_t>(r)].bytes;
  return bytes;
}

// combine computes the result of a small operation from the messages of the ranks below this one, in the order of
// ranks.
void Context::combine(std::byte *result, std::byte *buffer, Part wanted) {
  const bool reduces = call_->op.kind == HETERO_ALL_REDUCE || call_->op.kind == HETERO_REDUCE_SCATTER;
  sources_.assign(static_cast<size_t>(size_), nullptr);
  sources_[static_cast<size_t>(me_)] = buffer + parts_[static_cast<size_t>(me_)].offset;
  for (Message &m : shape_.below) {
    const std::byte *at = m.payload();
    for (int r = m.first; r < m.last; r++) {
      sources_[static_cast<size_t>(r)] = at;
      at += parts_[static_cast<size_t>(r)].bytes;
    }
  }
  if (reduces) {
    for (const void *&s : sources_) s = static_cast<const std::byte *>(s) + wanted.offset;
    if (wanted.bytes) kernel_(result + wanted.offset, nullptr, sources_.data(), size_, wanted.bytes / element_);
    return;
  }
  for (size_t r = 0; r < parts_.size(); r++)
    if (result + parts_[r].offset != sources_[r]) std::memcpy(result + parts_[r].offset, sources_[r], parts_[r].bytes);
}

void Context::receive(Message &m) {
  try {
    m.buffer->recv(m.rank, slot_, 0, m.bytes);
  } catch (const std::exception &error) {
    throw broken(m.rank, error.what());
  }
}

void Context::send(Buffer &buffer, int rank, size_t data_bytes) {
  try {
    buffer->send(rank, slot_, 0, sizeof(Head) + data_bytes);
  } catch (const std::exception &error) {
    throw broken(rank, error.what());
  }
}

// await waits until the message of a rank has arrived or, if sent is true, until a message to the rank was sent.
void Context::await(Buffer &buffer, int rank, bool sent) {
  try {
    // The wait does not detect an abort that came before it, so over is called first.
    if (over() || !(sent ? buffer->waitSend(without_limit) : buffer->waitRecv(without_limit))) throw given_up(rank);
  } catch (const Failure &) {
    throw;
  } catch (const std::exception &error) {
    throw broken(rank, error.what());
  }
}

void Context::enter_directly(std::byte *buffer, const int64_t *counts, bool small, uint8_t *missing) {
  Message &own = shape_.up;
  own.head() = Head{call_->op, -1, {}};
  const Part &mine = parts_[static_cast<size_t>(me_)];
  if (small && mine.bytes) std::memcpy(own.payload(), buffer + mine.offset, mine.bytes);
  for (Message &m : shape_.below) {
    receive(m);
    send(m.reply, m.rank, small ? mine.bytes : 0);
  }
  for (size_t i = 0; i < shape_.below.size(); i++) {
    try {
      await(shape_.below[i].buffer, shape_.below[i].rank, false);
    } catch (const Failure &f) {
      if (f.status == HETERO_GLOO_TIMEOUT) note_missing(i, missing);
      throw;
    }
  }
  for (Message &m : shape_.below) await(m.reply, m.rank, true);
  for (Message &m : shape_.below) {
    if (!differs(m.head().op, call_->op)) continue;
    call_->theirs = m.head().op;
    throw Failure{HETERO_GLOO_MISMATCH, m.rank, ""};
  }
  if (!small) return;
  const bool all = call_->op.kind == HETERO_ALL_REDUCE;
  combine(buffer, buffer, all ? Part{0, mine.bytes} : part(me_, counts));
}

void Context::enter_tree(std::byte *buffer, const int64_t *counts, bool small, uint8_t *missing) {
  Message &up = shape_.up, &down = shape_.down;
  for (Message &m : shape_.below) receive(m);
  if (me_) receive(down);
  Head verdict{call_->op, -1, {}};
  auto await_entry = [&](Message &m) {
    try {
      await(m.buffer, m.rank, false);
    } catch (const Failure &f) {
      if (f.status == HETERO_GLOO_TIMEOUT) missing[m.rank] = 1;
      throw;
    }
  };
  for (Message &m : shape_.below) {
    await_entry(m);
    if (verdict.other >= 0) continue;
    if (differs(m.head().op, call_->op))
      verdict.other = m.rank, verdict.theirs = m.head().op;
    else if (m.head().other >= 0)
      verdict.other = m.head().other, verdict.theirs = m.head().theirs;
  }
  if (me_) {
    up.head() = verdict;
    size_t bytes = 0;
    if (small && verdict.other < 0) {
      auto add = [&](const std::byte *from, size_t n) {
        if (n) std::memcpy(up.payload() + bytes, from, n);
        bytes += n;
      };
      const Part &mine = parts_[static_cast<size_t>(me_)];
      add(buffer + mine.offset, mine.bytes);
      for (Message &m : shape_.below) add(m.payload(), part_bytes(m.first, m.last));
    }
    send(up.buffer, up.rank, bytes);
    await_entry(down);
    verdict = down.head();
  } else {
    down.head() = verdict;
    const size_t all = static_cast<size_t>(call_->op.elements) * element_;
    if (small && verdict.other < 0) combine(down.payload(), buffer, {0, all});
  }
  const bool same = verdict.other < 0, differ = differs(verdict.op, call_->op);
  const size_t all = small && same ? static_cast<size_t>(call_->op.elements) * element_ : 0;
  for (Message &m : shape_.below) send(m.reply, m.rank, all);
  if (me_) await(up.buffer, up.rank, true);
  for (Message &m : shape_.below) await(m.reply, m.rank, true);
  if (differ || !same) {
    call_->theirs = differ ? verdict.op : verdict.theirs;
    throw Failure{HETERO_GLOO_MISMATCH, differ ? 0 : static_cast<int>(verdict.other), ""};
  }
  if (!all) return;
  const Part wanted = call_->op.kind == HETERO_REDUCE_SCATTER ? part(me_, counts) : Part{0, all};
  if (wanted.bytes) std::memcpy(buffer + wanted.offset, down.payload() + wanted.offset, wanted.bytes);
}

// note_missing determines the ranks whose messages had not arrived when the time limit expired. All messages before the
// i-th one have arrived.
void Context::note_missing(size_t i, uint8_t *missing) {
  end_watch(); // otherwise the watcher would abort the waits below
  missing[shape_.below[i].rank] = 1;
  for (size_t k = i + 1; k < shape_.below.size(); k++)
    if (!has_arrived(*shape_.below[k].buffer)) missing[shape_.below[k].rank] = 1;
}

// has_arrived reports whether a message has arrived. If the message has not arrived, Gloo closes all connections.
bool Context::has_arrived(gloo::transport::UnboundBuffer &buffer) {
  try {
    // Try again, because the watcher may have aborted one more wait.
    for (int turn = 0; turn < 3; turn++)
      if (buffer.waitRecv(std::chrono::milliseconds(1))) return true;
  } catch (const std::exception &) { // the message has not arrived, or the connection is broken
  }
  return false;
}

} // namespace hetero
