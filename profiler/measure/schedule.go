package measure

import (
	"math/rand/v2"
	"time"
)

const (
	// allPairs is the most ranks of which every pair is measured.
	allPairs = 16
	// leastSlot is the least time in which a pair can be measured: some tens of round trips and transfers of megabytes in a fast network.
	leastSlot = 20 * time.Millisecond
	// randomRounds is how many random partners each rank of a large group gets, beside its two neighbours.
	randomRounds = 4
)

// schedule says which pairs (a < b) are measured, round by round, and how long each round may take. Up to 16 ranks every pair has a round of
// its own, so that none disturbs another; where the budget is too short for that, and beyond 16 ranks, each rank has one partner in
// a round. All ranks compute the same.
func schedule(size int, budget time.Duration) (rounds [][][2]int, slot time.Duration) {
	switch {
	case size < 2:
		return nil, 0
	case size > allPairs:
		rounds = append(ring(size), randomPairs(size)...)
	case budget/time.Duration(size*(size-1)/2) >= leastSlot:
		for a := range size {
			for b := a + 1; b < size; b++ {
				rounds = append(rounds, [][2]int{{a, b}})
			}
		}
	default:
		rounds = tournament(size)
	}
	return rounds, max(budget/time.Duration(len(rounds)), leastSlot)
}

// tournament is every pair, in rounds in which nobody meets two: one rank stays, the others turn around it (the circle method).
func tournament(size int) (rounds [][][2]int) {
	seats := size + size%2 // an odd one pauses
	for round := range seats - 1 {
		var pairs [][2]int
		at := func(seat int) int {
			if seat == 0 {
				return 0
			}
			return 1 + (seat-1+round)%(seats-1)
		}
		for i := range seats / 2 {
			if a, b := at(i), at(seats-1-i); a < size && b < size {
				pairs = append(pairs, [2]int{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, pairs)
	}
	return rounds
}

// ring is each rank with the next, in two rounds, three for an odd number.
func ring(size int) [][][2]int {
	rounds := make([][][2]int, 2)
	for a := 0; a+1 < size; a++ {
		rounds[a%2] = append(rounds[a%2], [2]int{a, a + 1})
	}
	closing := [2]int{0, size - 1}
	if size%2 == 0 {
		rounds[1] = append(rounds[1], closing)
		return rounds
	}
	return append(rounds, [][2]int{closing})
}

func randomPairs(size int) (rounds [][][2]int) {
	random := rand.New(rand.NewPCG(uint64(size), 0))
	for range randomRounds {
		var pairs [][2]int
		order := random.Perm(size)
		for i := 0; i+1 < size; i += 2 {
			a, b := order[i], order[i+1]
			pairs = append(pairs, [2]int{min(a, b), max(a, b)})
		}
		rounds = append(rounds, pairs)
	}
	return rounds
}
