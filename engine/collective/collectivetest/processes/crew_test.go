package processes

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// If a process does not end, all callers that wait for it must get an error with the name of the process.
func TestAProcessThatDoesNotEndIsGivenUp(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		needtest.Missing(t, "tools", err)
	}
	defer func() { _ = cmd.Wait() }()
	w := newWorker(cmd, io.Discard) // its end is never reported
	reply := w.expect(1)
	err := w.kill(time.Millisecond)
	if want := fmt.Sprintf("process %d did not end", cmd.Process.Pid); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if r := <-reply; r != nil || !errors.Is(w.gone(), collective.ErrDied) {
		t.Errorf("got the reply %v, gone: %v; want none, and that it has died", r, w.gone())
	}
	if err := w.kill(time.Minute); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// closing is a communicator that can be closed.
type closing struct{ collective.Communicator }

func (closing) Close() error { return nil }
func (closing) Err() error   { return errors.New("it is still there") }

// When a rank joins the next group, its process must remove the groups that all ranks have left.
func TestGroupsThatWereLeftAreForgotten(t *testing.T) {
	requests, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, replies, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- Serve(requests, replies, func() (device.Device, error) { return reference.New(), nil },
			func(context.Context, device.Device, Group) (collective.Communicator, error) { return closing{}, nil })
	}()
	ask, hear := gob.NewEncoder(to), gob.NewDecoder(from)
	answer := func() string {
		t.Helper()
		var r reply
		if err := hear.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Fault == nil {
			return ""
		}
		return r.Fault.Text
	}
	answer() // reports that the device is open
	for i, step := range []struct {
		do    verb
		group uint64
		want  string
	}{
		{join, 1, ""}, {join, 2, ""}, {leave, 1, ""},
		{failure, 1, "it is still there"}, // this error comes from the process itself
		{join, 3, ""},
		{failure, 1, collective.ErrClosed.Error()},
		{failure, 2, "it is still there"},
	} {
		if err := ask.Encode(&request{Do: step.do, Group: Group{Number: step.group}}); err != nil {
			t.Fatal(err)
		}
		if got := answer(); got != step.want {
			t.Errorf("request %d: got %q, want %q", i, got, step.want)
		}
	}
	if err := errors.Join(to.Close(), <-served, from.Close(), replies.Close()); err != nil {
		t.Error(err)
	}
}
