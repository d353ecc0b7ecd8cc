// dropout_simd.h: computes which elements of a sample dropout keeps, sixteen counters of Philox4x32-10 at a time
// (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, 2011).
//
//     key       (key[0], key[1])
//     counter   (position/4, stream, low half of the sample id, high half of the sample id)
//
// The generator computes four words for a counter. Word position%4 decides whether the element at this position is
// kept.
#pragma once

#include "elementwise_simd.h"

namespace hetero {
namespace {

// Lanes of 64 bits. Their upper halves are zero, except in products.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are taken out of pairs");
constexpr int kWide = kPartLanes / 2;
typedef uint64_t PartL __attribute__((vector_size(4 * kPartLanes)));

SIMD_INLINE PartL product(PartL a, uint32_t b) {
  const PartL m = uint64_t(b) - PartL{};
#if SIMD_AVX512
  return (PartL)_mm512_mul_epu32((__m512i)a, (__m512i)m);
#elif SIMD_AVX2
  return (PartL)_mm256_mul_epu32((__m256i)a, (__m256i)m);
#elif defined(__SSE2__)
  return (PartL)_mm_mul_epu32((__m128i)a, (__m128i)m);
#else
  return a * m;
#endif
}

// Computes the words for elements 4·first … 4·first + 63, which are the words of counters first … first + 15, in order.
SIMD_INLINE void philox(const DropoutSample &s, uint32_t first, uint32_t words[64]) {
  static const uint64_t count[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  uint64_t front[16], back[16]; // words 0 and 1 of each counter; words 2 and 3
  const PartL zero{}, low = 0xffffffffu - zero;
  for (int part = 0; part < 16; part += kWide) {
    PartL w0, w1 = s.stream - zero, w2 = (s.id & 0xffffffffu) - zero, w3 = (s.id >> 32) - zero;
    memcpy(&w0, count + part, sizeof w0);
    w0 = (w0 + (uint64_t(first) - zero)) & low;
    uint32_t key0 = s.key[0], key1 = s.key[1];
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      const PartL a = product(w0, 0xD2511F53u), b = product(w2, 0xCD9E8D57u);
      w0 = (b >> 32) ^ w1 ^ (uint64_t(key0) - zero);
      w1 = b & low;
      w2 = (a >> 32) ^ w3 ^ (uint64_t(key1) - zero);
      w3 = a & low;
    }
    w0 |= w1 << 32;
    w2 |= w3 << 32;
    memcpy(front + part, &w0, sizeof w0);
    memcpy(back + part, &w2, sizeof w2);
  }
  uint64_t pairs[32];
  for (int i = 0; i < 16; i++) {
    pairs[2 * i] = front[i];
    pairs[2 * i + 1] = back[i];
  }
  memcpy(words, pairs, sizeof pairs); // in little-endian order, the low half comes first
}

// Computes the multipliers of the 64 elements from element `from` on: factor for a kept element, else 0.
SIMD_INLINE void keep_factors(const DropoutSample &s, int64_t from, float factor, float *out) {
  uint32_t words[64];
  philox(s, uint32_t(from / 4), words);
  if (s.threshold > 0xffffffffu) factor = 0; // all elements are dropped
  const uint32_t threshold = uint32_t(s.threshold);
  for (int i = 0; i < 64; i++) out[i] = words[i] >= threshold ? factor : 0.0f;
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
      // Use a select and not a product, so that a dropped element becomes 0 even if it is infinite.
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
