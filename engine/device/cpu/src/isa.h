// isa.h: the instruction set of the kernels. It is determined once, at the first query. Only the limits for AMX follow
// later changes of the environment variable.
//
// HETERO_CPU_ISA limits the instruction set, for tests. It cannot select instructions that the CPU lacks.
//
//   avx512_bf16   no AMX
//   avx512        neither AMX nor the bf16 instructions of AVX-512
//   avx2          no AVX-512
//   generic       neither AVX-512 nor AVX2
//   amx           no limit; kernels are chosen as on a CPU with AMX (expects_amx), even if the CPU lacks AMX
#pragma once

namespace hetero {

enum class Isa { generic, avx2, avx512 }; // avx512 means F, BW, DQ and VL; avx2 includes FMA and F16C

Isa isa();
bool has_amx_bf16();   // whether tiles and their bf16 products are available, and the operating system allows their use
bool excludes_amx();   // whether HETERO_CPU_ISA is avx512_bf16
bool expects_amx();    // whether kernels are chosen for a CPU with AMX; follows changes of the environment
bool has_avx512bf16(); // whether vdpbf16ps and vcvtneps2bf16 are available; on arm64: whether products of bf16 are fast
const char *isa_name(); // "avx512_bf16", "avx512", "avx2", "generic"

} // namespace hetero
