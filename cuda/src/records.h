// records.h: reads the buffers that CUPTI fills. Compiled only if CUPTI's header exists (HETERO_CUPTI).
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hetero {

// The fields of a CUPTI record that are kept.
struct Noted {
  int32_t kind;
  const char *name; // CUPTI's name, which CUPTI owns
  uint32_t lane;
  uint64_t begin, end, bytes, node;
};

// Returns the records of the kept kinds in a buffer. lost increases if a record cannot be read, or if memory is short.
std::vector<Noted> read_buffer(uint8_t *records, size_t bytes, int64_t &lost);

// Returns the number of records that CUPTI dropped since the last query.
int64_t dropped_records(CUcontext context, uint32_t stream);

// Returns the readable name of the activity.
std::string readable_name(const Noted &noted);

} // namespace hetero
