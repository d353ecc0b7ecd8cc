// tensor_core.h: instructions of a warp for tensor cores, on the host (cuda_runtime.h). The layouts of registers are
// those of the PTX manual ("Matrix fragments for mma.m16n8k16", "ldmatrix"). With g = lane / 4 and t = lane % 4, a lane
// has:
//
//     A (16, 16)   a[0]: row g, columns 2t and 2t + 1; a[1]: row g + 8; a[2], a[3]: columns 2t + 8, 2t + 9
//     B (16, 8)    b[0]: column g, rows 2t and 2t + 1; b[1]: column g, rows 2t + 8 and 2t + 9
//     D (16, 8)    d[0], d[1]: row g, columns 2t and 2t + 1; d[2], d[3]: row g + 8
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace shim {

inline float widen(__nv_bfloat16 v) { return __bfloat162float(v); }
inline float widen(__half v) { return __half2float(v); }

// d += A·B. A GPU adds the 16 products in an unspecified order, and truncates. This function adds them in order, and
// rounds each sum.
template <class T> void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
  float own[12], sum[4]; // own: 8 elements of A and 4 of B
  for (int i = 0; i < 12; i++) own[i] = widen(T{static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16))});
  whole_warp(own, sizeof own, sum, [](WarpOperands in, WarpResults out) {
    float left[16][16], right[16][8], result[16][8] = {};
    for (unsigned lane = 0; lane < 32; lane++) {
      float x[12];
      std::memcpy(x, in[lane], sizeof x);
      const unsigned g = lane / 4, t = lane % 4;
      for (unsigned i = 0; i < 8; i++) left[g + i / 2 % 2 * 8][2 * t + i % 2 + i / 4 * 8] = x[i];
      for (unsigned i = 0; i < 4; i++) right[2 * t + i % 2 + i / 2 * 8][g] = x[8 + i];
    }
    for (unsigned k = 0; k < 16; k++)
      for (unsigned row = 0; row < 16; row++)
        for (unsigned column = 0; column < 8; column++) result[row][column] += left[row][k] * right[k][column];
    for (unsigned lane = 0; lane < 32; lane++) {
      const unsigned g = lane / 4, t = lane % 4;
      std::memcpy(out[lane], &result[g][2 * t], 8);
      std::memcpy(out[lane] + 8, &result[g + 8][2 * t], 8);
    }
  });
  for (int i = 0; i < 4; i++) d[i] += sum[i];
}

// Loads four (8, 8) matrices of 16-bit elements. Lane 8·i + r has the address of row r of matrix i. r[i] receives row
// g, columns 2t and 2t + 1 of matrix i. If Transposed, it receives column g, rows 2t and 2t + 1.
template <bool Transposed> void ldmatrix_x4(uint32_t (&r)[4], const void *address) {
  if (reinterpret_cast<uintptr_t>(address) % 16) fault("ldmatrix has a misaligned address");
  whole_warp(&address, sizeof address, r, [](WarpOperands in, WarpResults out) {
    for (unsigned i = 0; i < 4; i++) {
      uint16_t matrix[8][8];
      for (unsigned row = 0; row < 8; row++) {
        const void *from = nullptr;
        std::memcpy(&from, in[8 * i + row], sizeof from);
        std::memcpy(matrix[row], from, 16);
      }
      for (unsigned lane = 0; lane < 32; lane++) {
        const unsigned g = lane / 4, t = lane % 4;
        const uint32_t low = Transposed ? matrix[2 * t][g] : matrix[g][2 * t],
                       high = Transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1], word = low | high << 16;
        std::memcpy(out[lane] + 4 * i, &word, 4);
      }
    }
  });
}

} // namespace shim
