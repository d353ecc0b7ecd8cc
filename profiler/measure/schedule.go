package measure

import (
	"math/rand/v2"
	"time"
)

const (
	// allPairs is the largest number of ranks for which all pairs are measured.
	allPairs = 16
	// leastSlot is the shortest time in which a pair can be measured. It permits some tens of round trips, and
	// transfers of megabytes on a fast network.
	leastSlot = 20 * time.Millisecond
	// randomRounds is the number of random partners of each rank in a large group, in addition to its neighbours in
	// the ring.
	randomRounds = 4
)

// schedule returns the pairs (a < b) of each round, and the duration of a round. For up to 16 ranks, and if the budget
// permits it, each pair has its own round, so that pairs do not disturb each other. Otherwise, all ranks measure at the
// same time, with one partner per round. All ranks compute the same schedule.
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

// tournament returns all pairs in rounds. In a round, each rank occurs at most once. One rank stays in place and the
// others rotate (circle method).
func tournament(size int) (rounds [][][2]int) {
	seats := size + size%2 // with an odd number of ranks, one rank pauses in each round
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

// ring returns the pairs of neighbouring ranks, in two rounds, or in three rounds for an odd number of ranks.
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
