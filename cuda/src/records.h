// records.h: what is in the buffers that CUPTI fills. Only where HETERO_CUPTI says that there is its header.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hetero {

// What is kept of CUPTI's record.
struct Noted {
  int32_t kind;
  const char *name; // as CUPTI has it, which keeps it
  uint32_t lane;
  uint64_t begin, end, bytes, node;
};

// What a buffer holds of the kinds that are kept. lost goes up where it cannot be read, or there is no memory.
std::vector<Noted> read_buffer(uint8_t *records, size_t bytes, int64_t &lost);

// What CUPTI had no room for, since it was asked last.
int64_t dropped_records(CUcontext context, uint32_t stream);

// The name of what was noted, as people read it.
std::string readable_name(const Noted &noted);

} // namespace hetero
