// headroom.h: addresses that this process may still reserve. RLIMIT_AS and RLIMIT_DATA limit them, and reserved
// addresses count, even if no memory is used.
#pragma once

#include <cstdint>
#include <string>

namespace hetero {

// Bytes that native code leaves unreserved under such a limit. Go's runtime ends the process if it cannot reserve
// memory, and so does oneDNN's code generator. Go's heap grows in steps of 4 to 8 MiB.
constexpr int64_t kHeadroom = 12 << 20;

// Reports whether RLIMIT_AS or RLIMIT_DATA limits this process.
bool addresses_limited();

// Throws OutOfMemory if a limit does not permit `bytes` more bytes and then kHeadroom. Without a limit, it does
// nothing.
void want_addresses(int64_t bytes);

// Returns why the system refused to reserve `bytes` bytes: the limit, the bytes in use, and the bytes that are left.
std::string refusal_of(int64_t bytes);

} // namespace hetero
