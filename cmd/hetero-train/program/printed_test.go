package program

import (
	"bytes"
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// A command that cannot write its results to standard output must fail, unless the reader has closed the pipe.
func TestResultsThatStandardOutputRefuses(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		needtest.Missing(t, "system", err)
	}
	defer full.Close()
	for _, args := range [][]string{
		{"--help"}, {"version"}, {"version", "--json"}, {"config", "show"}, {"devices"}, {"devices", "--json"},
		{"train", "--help"},
		{"eval", "--help"}, {"completion", "bash"},
	} {
		var messages bytes.Buffer
		code := runLine(context.Background(), args, session.Environment{Stdout: full, Stderr: &messages})
		if code != exit.IO || !strings.Contains(messages.String(), "write the results to standard output") ||
			strings.Count(messages.String(), syscall.ENOSPC.Error()) != 1 {
			t.Errorf("%q >/dev/full: got exit code %d, want %d and the reason once in\n%s", args, code, exit.IO,
				messages.String())
		}
	}
}

// Commands that run on ranks write to an outlet. The outlet's Write never fails, so the program must detect a failure
// of standard output at its end.
func TestAResultBehindAnOutlet(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		needtest.Missing(t, "system", err)
	}
	defer full.Close()
	var messages bytes.Buffer
	a := &cli.App{}
	a.Env.Stdout, a.Env.Stderr = logs.Unblocked(full, &messages, false)
	if _, err := a.Env.Stdout.Write([]byte("result\n")); err != nil {
		t.Fatal(err)
	}
	logs.Flushed(a.Env.Stdout, a.Env.Stderr, logs.FlushTime)
	if code := exit.Code(printed(a, nil)); code != exit.IO {
		t.Errorf("got exit code %d, want %d", code, exit.IO)
	}
	if a.Trains = true; printed(a, nil) != nil {
		t.Error("training ends by a lost progress line")
	}
	logs.OutletOf(a.Env.Stdout).Gone = syscall.EPIPE
	if a.Trains = false; printed(a, nil) != nil {
		t.Error("a reader that has left is a failure")
	}
}
