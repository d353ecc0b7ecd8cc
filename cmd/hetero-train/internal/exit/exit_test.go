package exit

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

func TestExitCodesOfAStart(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{&rendezvous.LostError{Rank: 1, Cause: "stopped by SIGTERM"}, Terminated},
		{&rendezvous.LostError{Rank: 1, Cause: Stopped{syscall.SIGTERM}.BeforeSteps().Error()}, Terminated},
		{&rendezvous.LostError{Rank: 1, Cause: Stopped{syscall.SIGINT}.BeforeSteps().Error()}, Interrupted},
		{&rendezvous.LostError{Rank: 1, Cause: "its connection ended"}, Communication},
		{fmt.Errorf("connect: %w", context.DeadlineExceeded), Communication},
		{fmt.Errorf("open a port: %w", syscall.EMFILE), Usage},
		{&rendezvous.UnreachableError{Address: "127.0.0.1:1", Err: rendezvous.ErrLoopbackDown}, Usage},
		{fmt.Errorf("begin: %w", &experiment.InUseError{Dir: "runs/a"}), IO}, // a restart may succeed
	} {
		if got := Code(Classify(context.Background(), c.err)); got != c.want {
			t.Errorf("%v: got exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// Rank 2 reports that rank 3, on the same machine, has died. The error must therefore name rank 3.
func TestTheRankThatFailedFirstIsNamed(t *testing.T) {
	passedOn := &rendezvous.LostError{Rank: 2, Cause: "collective: rank 2: communication aborted: hosts[rank=3 kind=died number=0 limit=0s missing= behind=] its process has ended"}
	const want = "rank 3 is lost: its process has ended"
	if err := Classify(context.Background(), fmt.Errorf("connect: %w", passedOn)); err.Error() != want ||
		Code(err) != Communication {
		t.Errorf("got %v (exit code %d), want %s (%d)", err, Code(err), want, Communication)
	}
	if rank := LostRank(passedOn); rank != 3 {
		t.Errorf("got rank %d, want 3", rank)
	}
	if err := LostPeer(passedOn); err.Error() != "rank 3: "+want {
		t.Errorf("got %v", err)
	}
	direct := &rendezvous.LostError{Rank: 1, Cause: "its connection ended"}
	if err := firstCause(direct); err != error(direct) {
		t.Errorf("got %v, want %v unchanged", err, direct)
	}
}
