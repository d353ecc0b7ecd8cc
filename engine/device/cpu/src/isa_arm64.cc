// isa_arm64.cc: isa.cc for arm64, where every CPU has NEON.
#include "isa_arm64.h"

#include <sys/auxv.h>

#include <cstdlib>
#include <cstring>

#include "isa.h"

namespace hetero {

bool has_bfmmla() {
  constexpr unsigned long bf16 = 1ul << 14; // HWCAP2_BF16; older headers do not define this name
  static const bool has = [] {
    const char *limit = std::getenv("HETERO_CPU_ISA");
    return (getauxval(AT_HWCAP2) & bf16) && !(limit && !std::strcmp(limit, "generic"));
  }();
  return has;
}

Isa isa() { return Isa::generic; }

// The callers on arm64 only need to know whether products of bf16 are fast. All other callers are compiled only for
// x86-64.
bool has_avx512bf16() { return has_bfmmla(); }

bool has_amx_bf16() { return false; }
bool excludes_amx() { return false; }
bool expects_amx() { return false; }

const char *isa_name() { return has_bfmmla() ? "neon_bf16" : "neon"; }

} // namespace hetero
