package plan

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// check returns an error unless each exchange has a pair of events, and insertions are in order.
func (w Wiring) check(p *Plan) error {
	if n := len(p.points()); len(w.Ready) != n || len(w.Done) != n {
		return fmt.Errorf("plan: got %d and %d events for exchanges between ranks, want %d of each", len(w.Ready),
			len(w.Done), n)
	}
	end := int64(0)
	for i, in := range w.Gradients {
		if in.Bytes < end || in.Bytes > p.params.Bytes {
			return fmt.Errorf(
				"plan: insertion %d: got %d bytes of gradients, want ascending numbers of at most %d bytes", i,
				in.Bytes, p.params.Bytes)
		}
		end = in.Bytes
	}
	return nil
}

// pairs returns the two events of each exchange, in the order of the exchanges.
type pairs struct{ ready, done []device.Event }

func (p *pairs) next() (ready, done device.Event) {
	ready, done = p.ready[0], p.done[0]
	p.ready, p.done = p.ready[1:], p.done[1:]
	return ready, done
}

// insert adds the inserted steps to those of the backward pass, each after the launch that makes its gradients final.
func (p *Plan) insert(steps []device.Step, owners []int, insertions []Insertion) []device.Step {
	var out []device.Step
	next := 0
	put := func(done int) { // inserts the steps of all gradients that are final after launch done
		for next < len(insertions) && p.gradientsFinal(insertions[next].Bytes) <= done {
			out = append(out, insertions[next].Steps...)
			next++
		}
	}
	put(-1)
	for i, s := range steps {
		out = append(out, s)
		if s.Launch != nil {
			put(owners[i])
		}
	}
	return out
}
