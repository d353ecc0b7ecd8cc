// isa.h: the instruction set of the kernels, determined once at the first query.
//
// HETERO_CPU_ISA=avx512|avx2|generic limits the instruction set for tests; avx512 excludes the bf16 instructions of
// AVX-512. The variable cannot select instructions that the CPU lacks. HETERO_CPU_ISA=amx affects only expects_amx().
#pragma once

namespace hetero {

enum class Isa { generic, avx2, avx512 }; // avx512 means F, BW, DQ and VL; avx2 includes FMA and F16C

Isa isa();
bool has_amx_bf16();   // whether tiles and their bf16 products are available, and the operating system allows their use
bool expects_amx();    // whether kernels are chosen for a CPU with AMX: has_amx_bf16(), or HETERO_CPU_ISA=amx
bool has_avx512bf16(); // whether vdpbf16ps and vcvtneps2bf16 are available; only if isa() is avx512
const char *isa_name(); // "avx512_bf16", "avx512", "avx2", "generic"

} // namespace hetero
