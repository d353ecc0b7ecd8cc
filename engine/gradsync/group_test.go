package gradsync

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/device/reference"
)

// A third rank joins a group of two ranks. Rows must then contain the rows of three ranks.
func TestRowsFollowTheRanksOfAGroup(t *testing.T) {
	const stride = 4
	two, three := job{}.communicators(t, 2, local.Model{}), job{}.communicators(t, 3, local.Model{})
	exchange := func(r *Rows, rank int) error {
		copy(r.Own(), fmt.Sprintf("r%d..", rank))
		return r.Exchange(t.Context())
	}
	errs, got := make([]error, 3), make([][]string, 3)
	var ranks sync.WaitGroup
	for rank := range 3 {
		ranks.Go(func() {
			first := three[rank] // the third rank was in no group before
			if rank < 2 {
				first = two[rank]
			}
			g := &Group{Grads: first}
			dev := reference.New()
			defer dev.Close()
			rows, err := g.NewRows(dev, "test", stride)
			if err == nil && rank < 2 {
				if err = exchange(rows, rank); err == nil {
					err = g.Change(three[rank], nil)
				}
			}
			if err == nil {
				err = exchange(rows, rank)
			}
			for row := range slices.Chunk(rows.All(), stride) {
				got[rank] = append(got[rank], string(row))
			}
			if rows.Close(); len(g.rows) != 0 {
				t.Errorf("rank %d: the group has %d Rows after Close", rank, len(g.rows))
			}
			errs[rank] = err
		})
	}
	ranks.Wait()
	for _, c := range slices.Concat(two, three) {
		c.Close()
	}
	for rank := range 3 {
		if want := []string{"r0..", "r1..", "r2.."}; errs[rank] != nil || !slices.Equal(got[rank], want) {
			t.Errorf("rank %d: got %v and %v, want %v", rank, got[rank], errs[rank], want)
		}
	}
}
