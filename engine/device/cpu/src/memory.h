// memory.h: the device's memory and its accounting.
#pragma once

#include <atomic>
#include <cstdint>

namespace hetero {

// Bytes as they were asked for, not as the system rounds them.
class Account {
public:
  void add(int64_t bytes);
  void remove(int64_t bytes) { allocated_ -= bytes; }
  int64_t allocated() const { return allocated_; }
  int64_t peak() const { return peak_; }

private:
  std::atomic<int64_t> allocated_{0}, peak_{0};
};

// Blocks of 1 MiB or more start at a multiple of 2 MiB and ask for huge pages; smaller ones are aligned to 64 bytes.
// Fresh content is undefined. nullptr where there is no memory.
void *allocate(int64_t bytes);
void release(void *p, int64_t bytes); // bytes as given to allocate

} // namespace hetero
