// spread_bf16.h: SPREAD_BF16(pair) is a __m512bh with the same pair of bf16 elements in all 16 lanes. The argument pair
// is an int32_t. Clang 16 and 17 crash on _mm512_set1_epi32 here.
#pragma once

#include <immintrin.h>

#if defined(__clang__)
#define SPREAD_BF16(pair) reinterpret_cast<__m512bh>(_mm512_broadcastd_epi32(_mm_cvtsi32_si128(pair)))
#else
#define SPREAD_BF16(pair) reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair))
#endif
