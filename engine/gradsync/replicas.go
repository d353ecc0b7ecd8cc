package gradsync

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// Part is a part of a replica, such as a tensor, with the checksum of its bits.
type Part struct {
	Name string
	Sum  uint32
}

// ReplicaError reports that the replicas of the ranks differ. Every rank gets the same error.
type ReplicaError struct {
	Hashes []uint64 // hashes of all ranks, by rank
	Odd    []int    // ranks that differ from the majority, ascending; nil without a majority
	// names of the parts that differ: between the first odd rank and the majority, or between any ranks if there is no
	// majority
	Parts    []string
	Majority int // a rank of the majority; -1 if no hash belongs to more than half of the ranks
}

// shownParts limits the number of parts in the text of a ReplicaError.
const shownParts = 3

func (e *ReplicaError) Error() string {
	parts := strings.Join(e.Parts[:min(len(e.Parts), shownParts)], ", ")
	if more := len(e.Parts) - shownParts; more > 0 {
		parts += fmt.Sprintf(" and %d more", more)
	}
	if parts == "" {
		parts = "no part, so the exchange of their hashes was damaged"
	}
	if e.Majority < 0 {
		return fmt.Sprintf("replicas differ in %s: none of the states belongs to more than half of the %d ranks, so it is unknown which rank is wrong: "+
			"check the memory (ECC errors) and the network of all machines", parts, len(e.Hashes))
	}
	names := make([]string, len(e.Odd))
	for i, r := range e.Odd {
		names[i] = strconv.Itoa(r)
	}
	verb := "rank " + names[0] + " differs"
	if len(names) > 1 {
		verb = "ranks " + strings.Join(names, ", ") + " differ"
	}
	return fmt.Sprintf("replicas differ: %s from the other %d ranks in %s (hash %016x, want %016x as on rank %d): "+
		"check the memory (ECC errors) and the network of its machine",
		verb, len(e.Hashes)-len(e.Odd), parts, e.Hashes[e.Odd[0]], e.Hashes[e.Majority], e.Majority)
}

// Replicas compares the parts of all ranks, and returns a ReplicaError if they differ. All ranks call it, with parts of
// the same names in the same order.
func Replicas(ctx context.Context, comm collective.Communicator, dev device.Device, parts []Part) error {
	sums := make([]byte, 0, 4*len(parts))
	for _, p := range parts {
		sums = binary.LittleEndian.AppendUint32(sums, p.Sum)
	}
	all, err := gather(ctx, comm, dev, "hash of the replica", binary.LittleEndian.AppendUint64(nil, hashBytes(sums)))
	if err != nil {
		return fmt.Errorf("comparing replicas: %w", err)
	}
	e := &ReplicaError{Majority: -1}
	for _, h := range all {
		e.Hashes = append(e.Hashes, binary.LittleEndian.Uint64(h))
	}
	if !slices.ContainsFunc(e.Hashes, func(h uint64) bool { return h != e.Hashes[0] }) {
		return nil
	}
	if all, err = gather(ctx, comm, dev, "checksums of the replica", sums); err != nil {
		return fmt.Errorf("replicas differ, and the ranks could not exchange the parts that differ: %w", err)
	}
	e.findOdd()
	e.findParts(parts, all)
	return e
}

// findOdd finds the majority and the ranks that differ from it.
func (e *ReplicaError) findOdd() {
	count := map[uint64]int{}
	for rank, h := range e.Hashes {
		if count[h]++; 2*count[h] > len(e.Hashes) {
			e.Majority = rank
		}
	}
	if e.Majority < 0 {
		return
	}
	for rank, h := range e.Hashes {
		if h != e.Hashes[e.Majority] {
			e.Odd = append(e.Odd, rank)
		}
	}
}

// findParts finds the parts that differ. The parameter all contains the checksums of all ranks.
func (e *ReplicaError) findParts(parts []Part, all [][]byte) {
	want, others := all[0], all[1:]
	if e.Majority >= 0 {
		want, others = all[e.Majority], [][]byte{all[e.Odd[0]]}
	}
	for i, p := range parts {
		at := func(sums []byte) uint32 { return binary.LittleEndian.Uint32(sums[4*i:]) }
		if slices.ContainsFunc(others, func(sums []byte) bool { return at(sums) != at(want) }) {
			e.Parts = append(e.Parts, p.Name)
		}
	}
}
