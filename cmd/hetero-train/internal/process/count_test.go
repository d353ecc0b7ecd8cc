package process

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

// Nodes count their ranks in a rendezvous whose members are nodes, so its errors must name nodes and not ranks.
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

// The error must name an exchange only if the exchange failed.
func TestErrorsOfTheCountNameTheirCause(t *testing.T) {
	const prefix = "the 2 nodes could not exchange their rank counts: "
	listen := &rendezvous.ListenError{Address: "10.0.0.1:29500", Err: errors.New("set a token")}
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{exit.Usagef("parallel.token_file: open token: no such file"), exit.Usage,
			"parallel.token_file: open token: no such file"},
		{listen, exit.Usage, "node 0 cannot listen on 10.0.0.1:29500: set a token"},
		{rendezvous.ErrToken, exit.Usage,
			"the token of this node differs from the token of node 0 (or one of them has no token)"},
		{&rendezvous.LostError{Rank: 1, Cause: exit.Stopped{Signal: syscall.SIGTERM}.Error()}, exit.Terminated, ""},
		{&rendezvous.LostError{Rank: 1, Cause: "the heartbeats stopped"}, exit.Communication,
			prefix + "node 1 is lost: the heartbeats stopped"},
		{errors.New("malformed message"), exit.Unexpected, prefix + "malformed message"},
	} {
		got := countFailed(t.Context(), 2, c.err)
		if exit.Code(got) != c.code || c.want != "" && got.Error() != c.want ||
			c.code == exit.Terminated && strings.Contains(got.Error(), prefix) {
			t.Errorf("%v: got exit code %d, %q, want %d, %q", c.err, exit.Code(got), got, c.code, c.want)
		}
	}
}
