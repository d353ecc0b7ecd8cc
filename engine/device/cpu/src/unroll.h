// unroll.h: HT_UNROLL(n) before a loop tells the compiler to unroll it n times. A macro is necessary because Clang 11
// does not know GCC's pragma.
#pragma once

#define HT_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define HT_UNROLL(n) HT_PRAGMA(unroll(n))
#else
#define HT_UNROLL(n) HT_PRAGMA(GCC unroll n)
#endif
