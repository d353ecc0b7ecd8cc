package gradsync

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// hasher is a 64-bit hash of a stream of bytes. It finds replicas that differ; it is not cryptographic. The bytes go to
// four lanes in turn, 8 bytes at a time. Every step is a bijection of a lane, so a single difference always changes the
// hash.
type hasher struct {
	lanes [4]uint64
	bytes uint64
}

// Odd factors with bits spread evenly, from the fractions of square roots of 2, 3 and 5.
const (
	factorA = 0x6a09e667f3bcc909
	factorB = 0xbb67ae8584caa73b
	factorC = 0x3c6ef372fe94f82b
)

func newHasher() hasher {
	return hasher{lanes: [4]uint64{factorA, factorB, factorC, ^uint64(factorA)}}
}

// block is the number of bytes per round of write. Only the last write of a stream may have a remainder.
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

// hashChunk is the size of copies of device memory that the host cannot access, in bytes.
const hashChunk = 1 << 20

// Hash returns a hash of the parameters, the running statistics and the regions passed as also, including padding.
// Ranks with equal replicas have equal hashes. Hash waits for the stream.
func (s *Sync) Hash(stream device.Stream, also ...device.Region) (uint64, error) {
	if err := stream.Sync(); err != nil {
		return 0, fmt.Errorf("hash of parameters: %w", err)
	}
	h, params := newHasher(), s.state.Params
	for _, r := range append([]device.Region{{Buffer: s.state.Values, Bytes: params.Bytes}, {Buffer: s.state.States, Bytes: params.StateBytes}}, also...) {
		if err := s.hashRegion(&h, stream, r); err != nil {
			return 0, fmt.Errorf("hash of parameters: %w", err)
		}
	}
	return h.sum(), nil
}

func (s *Sync) hashRegion(h *hasher, stream device.Stream, r device.Region) (err error) {
	if mem := r.Host(); mem != nil {
		h.write(mem)
		return nil
	}
	if s.hashing == nil {
		if s.hashing, err = s.dev.AllocHost(hashChunk); err != nil {
			return err
		}
		s.closer = append(s.closer, s.hashing.Free)
	}
	for at := int64(0); at < r.Bytes; at += hashChunk {
		n := min(hashChunk, r.Bytes-at)
		to := device.Region{Buffer: s.hashing, Bytes: n}
		if err := stream.Copy(to, device.Region{Buffer: r.Buffer, Offset: r.Offset + at, Bytes: n}); err != nil {
			return err
		}
		if err := stream.Sync(); err != nil {
			return err
		}
		h.write(to.Host())
	}
	return nil
}

// ReplicaError reports that parameters or running statistics differ between ranks. Every rank gets the same error.
type ReplicaError struct {
	Odd    []int    // ranks that differ from the majority, ascending; if there are two halves, the half without rank 0
	Hashes []uint64 // hashes of all ranks, by rank
}

func (e *ReplicaError) Error() string {
	names := make([]string, len(e.Odd))
	for i, r := range e.Odd {
		names[i] = strconv.Itoa(r)
	}
	verb := "rank " + names[0] + " holds"
	if len(names) > 1 {
		verb = "ranks " + strings.Join(names, ", ") + " hold"
	}
	most := 0
	for e.isOdd(most) {
		most++
	}
	return fmt.Sprintf("replicas differ: %s parameters or statistics that differ from those of the %d ranks that agree with rank %d (hash %016x, want %016x)",
		verb, len(e.Hashes)-len(e.Odd), most, e.Hashes[e.Odd[0]], e.Hashes[most])
}

func (e *ReplicaError) isOdd(rank int) bool {
	for _, r := range e.Odd {
		if r == rank {
			return true
		}
	}
	return false
}

// Replicas compares the hashes of all ranks, and returns a ReplicaError with the odd ranks if they differ. All ranks
// call it.
func Replicas(ctx context.Context, comm collective.Communicator, dev device.Device, hash uint64) error {
	parts, err := gather(ctx, comm, dev, "parameter hash", binary.LittleEndian.AppendUint64(nil, hash))
	if err != nil {
		return fmt.Errorf("comparing replicas: %w", err)
	}
	hashes, count := make([]uint64, len(parts)), map[uint64]int{}
	for i, p := range parts {
		hashes[i] = binary.LittleEndian.Uint64(p)
		count[hashes[i]]++
	}
	most := hashes[0]
	for _, h := range hashes { // in the order of ranks, so that all ranks get the same result
		if count[h] > count[most] {
			most = h
		}
	}
	e := &ReplicaError{Hashes: hashes}
	for rank, h := range hashes {
		if h != most {
			e.Odd = append(e.Odd, rank)
		}
	}
	if len(e.Odd) == 0 {
		return nil
	}
	return e
}
