// isa.cc: queries the CPU and the environment.
#include "isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>

namespace hetero {

namespace {

// Returns whether HETERO_CPU_ISA has this value.
bool limited_to(const char *value) {
  const char *limit = std::getenv("HETERO_CPU_ISA");
  return limit && !std::strcmp(limit, value);
}

#if defined(__x86_64__)
// GCC before 11 does not accept F16C in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

struct Choice {
  Isa isa = Isa::generic;
  bool bf16 = false;
};

Choice choose() {
  Choice c;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) c.isa = Isa::avx2;
  if (c.isa == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    c.isa = Isa::avx512;
  if (limited_to("generic")) c.isa = Isa::generic;
  if (limited_to("avx2") && c.isa == Isa::avx512) c.isa = Isa::avx2;
  c.bf16 = c.isa == Isa::avx512 && __builtin_cpu_supports("avx512bf16") && !limited_to("avx512");
#endif
  return c;
}

// Linux reserves tile registers for processes that request them, because their state takes 8 KiB per thread.
bool may_use_tiles() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24; // bits of CPUID leaf 7, EDX
  constexpr long request = 0x1023, tile_data = 18;     // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return (d & bf16) && (d & tile) && syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
  return false;
#endif
}

const Choice &choice() {
  static const Choice c = choose();
  return c;
}

} // namespace

Isa isa() { return choice().isa; }

bool has_avx512bf16() { return choice().bf16; }

bool has_amx_bf16() {
  if (!has_avx512bf16() || excludes_amx()) return false;
  static const bool may = may_use_tiles();
  return may;
}

bool excludes_amx() { return limited_to("avx512_bf16"); }

bool expects_amx() {
  if (limited_to("amx")) return has_avx512bf16();
  return !excludes_amx() && has_amx_bf16();
}

const char *isa_name() {
  switch (isa()) {
  case Isa::avx512: return has_avx512bf16() ? "avx512_bf16" : "avx512";
  case Isa::avx2: return "avx2";
  default: return "generic";
  }
}

} // namespace hetero
