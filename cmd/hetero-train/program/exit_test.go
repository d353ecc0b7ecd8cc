package program

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

func TestExitCodesOfAStart(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{&rendezvous.LostError{Rank: 1, Cause: "stopped by SIGTERM"}, exitTerminated},
		{&rendezvous.LostError{Rank: 1, Cause: "stopped by SIGINT"}, exitInterrupted},
		{&rendezvous.LostError{Rank: 1, Cause: "its connection ended"}, exitCommunication},
		{fmt.Errorf("connect: %w", context.DeadlineExceeded), exitCommunication},
		{fmt.Errorf("open a port: %w", syscall.EMFILE), exitUsage},
	} {
		if got := exitCode(classify(context.Background(), c.err)); got != c.want {
			t.Errorf("%v: got exit code %d, want %d", c.err, got, c.want)
		}
	}
}
