package train

import (
	"context"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// In TestRanksLeaveAndJoinBetweenTwoSteps, three ranks train. One of them leaves, and later another one joins with the
// checkpoint of rank 0. Only gradsync.Group and shares.Owner must know this. The losses must be those of a single rank.
func TestRanksLeaveAndJoinBetweenTwoSteps(t *testing.T) {
	accumulated, groups := testOptions(), testOptions()
	accumulated.Accumulation, groups.GhostGroup = 2, 2
	for _, c := range []struct {
		name    string
		options replica.Options
		sync    bool
		shares  [3][]int // of the three ranks, of the two that remain, and of these two with a new rank 1
	}{
		{"statistics of all ranks", testOptions(), true, [3][]int{{3, 1, 2}, {2, 4}, {1, 3, 2}}},
		{"micro-batches", accumulated, true, [3][]int{{1, 1, 1}, {3, 0}, {0, 1, 2}}},
		{"groups", groups, false, [3][]int{{2, 2, 2}, {2, 4}, {4, 2, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := members{t: t, shares: c.shares}
			m.first = crew{open: openReference, options: c.options, shares: c.shares[0], sync: c.sync, cap: 200,
				dir: t.TempDir()}
			one, ranks := alone(t, c.options, openReference), m.start()
			for name, s := range ranks {
				if s.err != nil || s.result.Steps != testSteps || len(s.evals) == 0 {
					t.Fatalf("%s: got %v, %d steps and %d evaluations", name, s.err, s.result.Steps, len(s.evals))
				}
				missed := len(one.losses) - len(s.losses)
				for i, loss := range s.losses {
					if want := one.losses[missed+i]; !(math.Abs(loss-want) <= ranksTolerance*want) {
						t.Errorf("%s, step %d: loss %.8g, one rank has %.8g", name, missed+i+1, loss, want)
					}
				}
				got, want := s.evals[len(s.evals)-1], one.evals[len(one.evals)-1]
				if got.Samples != want.Samples || math.Abs(got.Loss-want.Loss) > 10*ranksTolerance*want.Loss {
					t.Errorf("%s: evaluation %+v, one rank has %+v", name, got, want)
				}
			}
			if n := len(ranks["the rank that joins"].losses); n != testSteps-joins+1 {
				t.Errorf("the rank that joins trained %d steps, want those from step %d on", n, joins)
			}
		})
	}
}

// These are the steps before which a rank leaves, and another one joins.
const leaves, joins = 5, 8

// members are the ranks of a run. The group changes during the run.
type members struct {
	t      *testing.T
	first  crew
	shares [3][]int
	saved  func() // called when rank 0 has saved the state for the rank that joins, and when rank 0 ends
}

func (m *members) start() map[string]session {
	const stays, goes, remains = 0, 1, 2 // ranks of the first group
	groups := [3][2][]collective.Communicator{}
	for i, shares := range m.shares {
		for k := range groups[i] {
			groups[i][k] = localGroup(m.t, len(shares))
			defer func() {
				for _, c := range groups[i][k] {
					c.Close()
				}
			}()
		}
	}
	// moves moves a rank to another group, before a step.
	moves := func(o *Options, group, rank int) {
		replica := o.Replica
		err := replica.Group().Change(groups[group][0][rank], groups[group][1][rank])
		if err == nil {
			err = replica.Regroup(context.Background(), m.shares[group])
		}
		if allocated, _ := replica.Device().Memory(); err != nil || allocated != replica.PredictedBytes() {
			m.t.Errorf("rank %d of group %d: got %v, and predicted %d bytes of the %d of the device",
				rank, group, err, replica.PredictedBytes(), allocated)
		}
	}
	saved := make(chan struct{})
	m.saved = sync.OnceFunc(func() { close(saved) })
	first := m.first
	first.change = func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
		o.SaveSteps = joins - 1
		later := map[int]int{stays: 0, remains: 1} // number of the rank in the second group
		o.BeforeStep = func(step int64) {
			switch {
			case step == leaves && rank == goes:
				runtime.Goexit()
			case step == leaves:
				moves(o, 1, later[rank])
			case step == joins && rank == stays:
				m.saved()
				moves(o, 2, 0)
			case step == joins:
				moves(o, 2, 2)
			}
		}
	}
	second := m.first
	second.shares, second.dir = []int{m.first.options.MicroBatch()}, m.t.TempDir()
	second.change = func(_ int, _ context.CancelFunc, o *Options, _ *recorder) {
		o.BeforeStep = func(step int64) {
			if step == joins {
				moves(o, 2, 1)
			}
		}
	}
	var a, b, c, d session
	var ranks sync.WaitGroup
	run := func(s *session, crew crew, rank int, grads, stats collective.Communicator) {
		ranks.Go(func() {
			if *s = crew.rank(m.t, rank, grads, stats); rank == stays {
				m.saved()
			}
		})
	}
	run(&a, first, stays, groups[0][0][stays], groups[0][1][stays])
	run(&b, first, goes, groups[0][0][goes], groups[0][1][goes])
	run(&c, first, remains, groups[0][0][remains], groups[0][1][remains])
	<-saved
	if c, _, err := checkpoint.Latest(first.dir); err == nil { // if there is none, rank 0 has already failed
		c.Close() // it was only read
		if err := os.CopyFS(second.dir, os.DirFS(first.dir)); err != nil {
			m.t.Error(err)
		}
		run(&d, second, 0, localGroup(m.t, 1)[0], localGroup(m.t, 1)[0])
	}
	ranks.Wait()
	return map[string]session{"the rank that stays": a, "the rank with another number": c, "the rank that joins": d}
}
