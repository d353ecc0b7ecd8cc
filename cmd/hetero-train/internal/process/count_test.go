package process

import (
	"errors"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

// The nodes count their ranks in a rendezvous whose members are nodes, so its errors must name nodes.
func TestErrorsOfTheCountNameNodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&rendezvous.DuplicateError{Rank: 2, First: "a", Second: "rank-2.example"},
			"two processes claim to be node 2: a and rank-2.example"},
		{&rendezvous.LostError{Rank: 1, Cause: "the heartbeats stopped"}, "node 1 is lost: the heartbeats stopped"},
		{&rendezvous.MissingError{What: "start", Missing: []int{1, 2, 3}, Count: 3, WorldSize: 4, Waited: time.Second},
			"start: waited 1s for 4 nodes, missing: nodes 1 to 3"},
		{rendezvous.ErrToken, "the token of this node differs from the token of node 0 (or one of them has no token)"},
		{errors.New("got -1 ranks on this node, want 0 or more"), "got -1 ranks on this node, want 0 or more"},
	} {
		got := ofNodes(c.err)
		if got.Error() != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("%q does not wrap its cause", got)
		}
	}
}
