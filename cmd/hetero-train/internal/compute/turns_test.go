package compute

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

func TestRanksOfAMachineTakeTurns(t *testing.T) {
	members := make([]rendezvous.Member, 6)
	for rank := range members {
		members[rank].Host = []string{"a", "b"}[rank/4] // four ranks on host a, two on host b
	}
	var got []int
	for rank := range members {
		turn := TurnsOf(members, []int{0, 2, 3, 4, 5}, rank)
		if turn.Count != 3 {
			t.Errorf("rank %d: got %d turns, want the 3 of machine a", rank, turn.Count)
		}
		got = append(got, turn.Own)
	}
	if want := []int{0, -1, 1, 2, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("got turns %v, want %v: machines measure at the same time, ranks of one in turns", got, want)
	}
}
