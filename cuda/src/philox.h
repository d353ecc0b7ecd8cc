// philox.h: the generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3,
// 2011). Every device calls it with the same key and counter, so dropout keeps the same elements on every device:
//
//     key       (key[0], key[1])
//     counter   (position/4, stream, low half of the sample id, high half of the sample id)
//
// The result has four words. Word position%4 decides whether dropout keeps the element at this position of the sample.
#pragma once

#include "gpu.h"

namespace hetero {

__device__ inline void philox(uint32_t key0, uint32_t key1, uint32_t w[4]) {
  for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * w[0], b = uint64_t{0xCD9E8D57u} * w[2];
    w[0] = static_cast<uint32_t>(b >> 32) ^ w[1] ^ key0;
    w[1] = static_cast<uint32_t>(b);
    w[2] = static_cast<uint32_t>(a >> 32) ^ w[3] ^ key1;
    w[3] = static_cast<uint32_t>(a);
  }
}

// Returns which of a counter's four elements dropout keeps, one bit each. threshold is round(P·2³²).
__device__ inline unsigned kept_of(uint64_t threshold, uint32_t stream, const uint32_t *key, int64_t sample,
                                   uint32_t counter) {
  const auto id = static_cast<uint64_t>(sample);
  uint32_t w[4] = {counter, stream, static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32)};
  philox(key[0], key[1], w);
  unsigned bits = 0;
  for (int k = 0; k < 4; k++) bits |= (w[k] >= threshold ? 1u : 0u) << k;
  return bits;
}

} // namespace hetero
