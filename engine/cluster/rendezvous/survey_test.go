package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSurveySaysWhatEveryRankDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		ranks := []Options{n.options(0, 4), n.options(1, 4), n.options(2, 4), n.options(3, 4)}
		for rank := range ranks[:3] {
			ranks[rank].Status = func() string { return fmt.Sprintf("rank %d waits for bucket 3", rank) }
		}
		wait := make(chan struct{})
		ranks[2].Status = func() string { <-wait; return "late" }
		results := joinAll(ranks)
		defer closeJoined(results)
		var groups []*Group
		for _, result := range results {
			if result.err != nil {
				t.Fatal(result.err)
			}
			groups = append(groups, result.group)
		}
		want := []string{"rank 0 waits for bucket 3", "rank 1 waits for bucket 3", NoAnswer, ""}
		ask := func(who []*Group, within time.Duration) {
			began := time.Now()
			for i, err := range together(who, func(g *Group) error {
				got, err := g.Survey(context.Background())
				if err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("got %q, want %q", got, want)
				}
				return err
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", who[i].Rank(), err)
				}
			}
			if took := time.Since(began); took > within {
				t.Errorf("took %v, want at most %v", took, within)
			}
		}
		ask(groups, 2*time.Second)
		close(wait)
		synctest.Wait()
		want[2] = "late"
		ask(groups, 0)
		groups[3].Close()
		synctest.Wait() // rank 0 knows that the rank has left
		want[3] = NoAnswer
		ask(groups[:3], 0)
		groups[0].Abort(errors.New("enough"))
		if _, err := groups[0].Survey(context.Background()); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("got %v, want that the group is broken", err)
		}
	})
}

func TestNodesNumberTheirRanks(t *testing.T) {
	tests := []struct {
		counts, firsts []int
		total          int
	}{
		{[]int{4}, []int{0}, 4},
		{[]int{4, 1, 2}, []int{0, 4, 5}, 7},
		{[]int{0, 3}, []int{0, 0}, 3},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.counts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				nodes := make([]*Group, len(test.counts))
				for node := range nodes {
					nodes[node] = &Group{options: Options{Rank: node}} // together needs these groups
				}
				for node, err := range together(nodes, func(g *Group) error {
					node := g.Rank()
					first, total, err := CountRanks(context.Background(), n.options(node, len(test.counts)),
						test.counts[node])
					if err == nil && (first != test.firsts[node] || total != test.total) {
						err = fmt.Errorf("got first %d of %d, want %d of %d", first, total, test.firsts[node],
							test.total)
					}
					if _, dialed := n.dial(context.Background(), ""); err == nil && !errors.Is(dialed, errNobody) {
						err = errors.New("the meeting place is still open")
					}
					return err
				}) {
					if err != nil {
						t.Errorf("node %d: %v", node, err)
					}
				}
			})
		})
	}
	if _, _, err := CountRanks(context.Background(), Options{WorldSize: 1, Address: "127.0.0.1:0"}, -1); err == nil {
		t.Error("took -1 ranks")
	}
}
