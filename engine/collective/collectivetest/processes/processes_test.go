package processes_test

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
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest/processes"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// roleVariable selects the test binary's role as the process of a rank. "deviceless" has no device.
const roleVariable = "HETERO_PROCESSES_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	err := processes.Serve(os.NewFile(3, "requests"), os.NewFile(4, "replies"), func() (device.Device, error) {
		if role == "deviceless" {
			return nil, errors.New("no such hardware")
		}
		return reference.New(), nil
	}, func(ctx context.Context, _ device.Device, g processes.Group) (collective.Communicator, error) {
		c, err := shm.Connect(ctx, shm.Config{Rank: g.Rank, Size: g.Size, Address: g.Address, Timeout: g.Limit})
		if err != nil {
			return nil, err
		}
		if role == "wrong" && g.Rank == 1 {
			return wrong{c}, nil
		}
		return c, nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// wrong is a communicator that computes wrong sums.
type wrong struct{ *shm.Communicator }

func (w wrong) Enqueue(op collective.Op) error {
	if o, ok := op.(collective.AllReduce); ok && o.DType == tensor.F32 && o.Buffer.Bytes > 0 {
		o.After = spoiling{o.After, o.Buffer}
		op = o
	}
	return w.Communicator.Enqueue(op)
}

// spoiling is an event that modifies a buffer before the buffer is read.
type spoiling struct {
	device.Event
	buffer device.Region
}

func (s spoiling) WaitHost(limit time.Duration) error {
	err := s.Event.WaitHost(limit)
	if err == nil {
		s.buffer.Host()[3] ^= 0x80
	}
	return err
}

// crew opens a crew whose processes are this test binary.
func crew(t *testing.T, role string) *processes.Crew {
	t.Helper()
	if err := shm.Available(); err != nil {
		needtest.Missing(t, "shm", err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := processes.New(func(int) *exec.Cmd {
		cmd := exec.Command(program)
		if role == "parent" { // a shell starts a process that keeps the output pipe open, then becomes the rank
			cmd = exec.Command("sh", "-c", `sleep 100 3<&- 4>&- & exec "$0"`, program)
		}
		cmd.Env = append(os.Environ(), roleVariable+"="+role)
		return cmd
	}, shm.NewAddress)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Close must wait for the rank, but not for processes that the rank has started.
func TestARankEndsBeforeWhatItHasStarted(t *testing.T) {
	g := crew(t, "parent").Open(conformance.Go(t), 1, time.Minute)
	g.Kill(0) // fails the test if it takes too long
}

var few = collectivetest.Options{Sizes: []int{1, 3}, Rounds: 2, Apart: true}

// A communicator in another process must pass the same suite as one in this process.
func TestConformance(t *testing.T) {
	c := crew(t, "right")
	collectivetest.RunWith(conformance.Brief(conformance.Go(t),
		"a long check, which the communicators of packages shm and gloo pass"), c.Open, few)
}

// The suite must detect a fault of a single rank.
func TestWrongRanksAreFound(t *testing.T) {
	c := crew(t, "wrong")
	match, err := conformance.ParseMatch("/values/all_reduce of every")
	if err != nil {
		t.Fatal(err)
	}
	r := conformance.Run("wrong", func(t conformance.T) { collectivetest.RunWith(t, c.Open, few) },
		conformance.Options{Match: match, Limit: 2 * time.Minute})
	if passed, failed, _ := r.Count(); passed != 1 || failed != 1 { // passes with one rank, fails with three
		t.Errorf("got %d passed and %d failed, want 1 and 1: %+v", passed, failed, r)
	}
}

// If a rank has no device, the error must state the reason.
func TestARankWithoutDevice(t *testing.T) {
	c := crew(t, "deviceless")
	r := conformance.Run("suite", func(t conformance.T) { collectivetest.RunWith(t, c.Open, few) },
		conformance.Options{Limit: 2 * time.Minute})
	_, failed, _ := r.Count()
	at := r
	for len(at.Within) > 0 {
		at = at.Within[0]
	}
	if failed == 0 || len(at.Output) == 0 ||
		!strings.Contains(at.Output[0], "the process of rank 0: no such hardware") {
		t.Errorf("got %d failed, the first %+v", failed, at)
	}
}

// Closing the crew must end a rank whose communicator hangs.
func TestARankThatHangsEndsWithItsCrew(t *testing.T) {
	there, requests, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	hanging := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- processes.Serve(there, io.Discard, func() (device.Device, error) { return reference.New(), nil },
			func(context.Context, device.Device, processes.Group) (collective.Communicator, error) {
				close(hanging)
				select {}
			})
	}()
	if err := gob.NewEncoder(requests).Encode(struct{ Do uint8 }{1}); err != nil { // join
		t.Fatal(err)
	}
	<-hanging
	if err := requests.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it still serves")
	}
}
