// isa.h: the instruction set of the kernels, determined once at the first query.
//
// HETERO_CPU_ISA=avx512|avx2|generic lowers it (for tests; avx512: without its bf16 instructions). It cannot raise it
// above the CPU's.
#pragma once

namespace hetero {

enum class Isa { generic, avx2, avx512 }; // avx512: F, BW, DQ, VL; avx2: with FMA and F16C

Isa isa();
bool has_amx_bf16();    // tiles and their bf16 products, if the operating system allows their use
bool has_avx512bf16();  // vdpbf16ps, vcvtneps2bf16; only where isa() is avx512
const char *isa_name(); // "avx512_bf16", "avx512", "avx2", "generic"

} // namespace hetero
