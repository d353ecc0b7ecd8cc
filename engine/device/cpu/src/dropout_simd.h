// dropout_simd.h: which elements of a sample stay, sixteen counters of Philox4x32-10 at a time.
//
// Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (2011). Counter (position/4, stream, low half
// of the sample id, high half); word position%4 decides.
#pragma once

#include "elementwise_simd.h"

namespace hetero {
namespace {

// Words of counters first … first + 15: words[j][i] is word j of counter first + i.
SIMD_INLINE void philox(const DropoutSample &s, uint32_t first, uint32_t words[4][16]) {
  for (uint32_t i = 0; i < 16; i++) {
    words[0][i] = first + i;
    words[1][i] = s.stream;
    words[2][i] = uint32_t(s.id);
    words[3][i] = uint32_t(s.id >> 32);
  }
  uint32_t key0 = s.key[0], key1 = s.key[1];
  for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    for (int i = 0; i < 16; i++) {
      const uint64_t a = uint64_t(words[0][i]) * 0xD2511F53u, b = uint64_t(words[2][i]) * 0xCD9E8D57u;
      words[0][i] = uint32_t(b >> 32) ^ words[1][i] ^ key0;
      words[1][i] = uint32_t(b);
      words[2][i] = uint32_t(a >> 32) ^ words[3][i] ^ key1;
      words[3][i] = uint32_t(a);
    }
  }
}

// The multiplier of elements from … from + 63: factor where they stay, else 0.
SIMD_INLINE void keep_factors(const DropoutSample &s, int64_t from, float factor, float *out) {
  uint32_t words[4][16];
  philox(s, uint32_t(from / 4), words);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 4; j++) out[4 * i + j] = words[j][i] >= s.threshold ? factor : 0.0f;
}

template <class T> void dropout(const DropoutSample &s, int64_t from, int64_t n, const void *src_, void *dst_) {
  const T *src = static_cast<const T *>(src_);
  T *dst = static_cast<T *>(dst_);
  float factors[64];
  for (int64_t block = 0; block < n; block += 64) {
    keep_factors(s, from + block, s.factor, factors);
    each_vector(n - block < 64 ? n - block : 64, [&](int64_t i, auto full, int lanes) {
      const F32 f = load(factors + i);
      const F32 x = load_row<full.value>(src + block + i, lanes);
      // a select, not a product: what is dropped is 0 even where it was infinite
      store_row<full.value>(dst + block + i, select(f > zero(), x * f, zero()), lanes);
    });
  }
}

void dropout_keep(const DropoutSample &s, int64_t from, int64_t n, uint8_t *keep) {
  float factors[64];
  for (int64_t block = 0; block < n; block += 64) {
    keep_factors(s, from + block, 1.0f, factors);
    for (int i = 0; i < 64; i++) keep[block + i] = factors[i] > 0;
  }
}

constexpr DropoutTable dropout_table() { return {{dropout<float>, dropout<Bf16>}, dropout_keep}; }

} // namespace
} // namespace hetero
