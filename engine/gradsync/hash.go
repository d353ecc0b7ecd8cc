package gradsync

import (
	"encoding/binary"
	"math/bits"
)

// hasher is a 64-bit hash of a stream of bytes. It finds ranks that differ; it is not cryptographic. The bytes go to
// four lanes in turn, 8 bytes at a time. Every step is a bijection of a lane, so a single difference always changes the
// hash.
type hasher struct {
	lanes [4]uint64
	bytes uint64
}

// Odd factors with evenly distributed bits: the fractional parts of the square roots of 2, 3 and 5.
const (
	factorA = 0x6a09e667f3bcc909
	factorB = 0xbb67ae8584caa73b
	factorC = 0x3c6ef372fe94f82b
)

func newHasher() hasher {
	return hasher{lanes: [4]uint64{factorA, factorB, factorC, ^uint64(factorA)}}
}

// block is the number of bytes per round of the method write. Only the last write of a stream may have a remainder.
const block = 32

func (h *hasher) write(b []byte) {
	h.bytes += uint64(len(b))
	l := h.lanes
	for ; len(b) >= block; b = b[block:] {
		l[0] = stir(l[0], binary.LittleEndian.Uint64(b))
		l[1] = stir(l[1], binary.LittleEndian.Uint64(b[8:]))
		l[2] = stir(l[2], binary.LittleEndian.Uint64(b[16:]))
		l[3] = stir(l[3], binary.LittleEndian.Uint64(b[24:]))
	}
	h.lanes = l
	if len(b) > 0 {
		var rest [block]byte
		copy(rest[:], b)
		bytes := h.bytes
		h.write(rest[:])
		h.bytes = bytes
	}
}

func stir(lane, word uint64) uint64 {
	lane = (lane ^ word) * factorB
	return lane ^ lane>>29
}

func (h *hasher) sum() uint64 {
	out := h.bytes * factorC
	for i, l := range h.lanes {
		out = stir(out, bits.RotateLeft64(l, 16*i))
	}
	out = (out ^ out>>32) * factorA
	return out ^ out>>32
}

func hashBytes(b []byte) uint64 {
	h := newHasher()
	h.write(b)
	return h.sum()
}
