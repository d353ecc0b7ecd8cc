//go:build cgo && linux

package gloo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/ranktest"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var _ gloo.Control = (*rendezvous.Group)(nil)

// roleVariable makes the test binary run as one rank. Its value is the role as JSON.
const roleVariable = "HETERO_GLOO_TEST_ROLE"

type role struct {
	Rank, Size int
	Address    string // address of the rendezvous
	Timeout    time.Duration
	Bytes      int64
	Alone      bool // the rank is the only one of its group
}

func TestMain(m *testing.M) {
	ranktest.Main(m, roleVariable, func(r role) {
		rank := -1
		err := r.run()
		var peer *collective.PeerError
		var late *collective.TimeoutError
		switch {
		case errors.As(err, &peer):
			rank = peer.Rank
		case errors.As(err, &late):
			fmt.Printf("late %v: %v\n", slices.Concat(late.Missing, late.Behind), err)
			return
		}
		fmt.Printf("peer %d: %v\n", rank, err)
	})
}

// run reduces r.Bytes again and again. It prints "round" after the first reduction, and after the first reduction that
// follows a SIGUSR1.
func (r role) run() error {
	if r.Alone {
		comm, err := gloo.Connect(context.Background(),
			gloo.Config{Size: 1, Control: collectivetest.Seat{Board: collectivetest.NewBoard()}, Host: "127.0.0.1"})
		if err == nil {
			err = comm.Close()
		}
		return err
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	group, err := ranktest.Join(ctx, rendezvous.Options{Rank: r.Rank, WorldSize: r.Size, Address: r.Address})
	if err != nil {
		return err
	}
	defer group.Close()
	comm, err := gloo.Connect(ctx, gloo.Config{Rank: r.Rank, Size: r.Size, Control: group, Host: "127.0.0.1",
		Timeout: r.Timeout, RankOf: ranktest.LostRank})
	if err != nil {
		group.Abort(err) // the other ranks wait for this rank
		return err
	}
	memory, err := reference.New().Alloc(r.Bytes)
	if err != nil {
		return err
	}
	clear(memory.Host())
	for say := true; ; {
		if err := comm.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(memory),
			DType: tensor.F32}); err != nil {
			return err
		}
		if err := comm.Sync(context.Background()); err != nil {
			comm.Close()
			return err
		}
		if say {
			fmt.Println("round")
		}
		select {
		case <-asked:
			say = true
		default:
			say = false
		}
	}
}

// A pause of all processes must not count towards a time-out. If one rank is stopped while others wait, the time must
// count.
func TestAPauseOfAllProcessesEndsNothing(t *testing.T) {
	nativetest.Need(t, "gloo", gloo.LibraryName)
	// The first time-out is thousands of times as long as a round of 64 KiB. Only a very busy machine needs the second
	// time-out.
	for _, limit := range []time.Duration{3 * time.Second, 30 * time.Second} {
		line, ended := pauseOfAll(t, limit)
		if ended == "" {
			if !strings.HasPrefix(line, "late [1]: ") {
				t.Errorf("a pause of rank 1: rank 0 got %q, want that rank 1 is late", line)
			}
			return
		}
		t.Logf("with a time-out of %v: a rank ended with %q", limit, ended)
	}
	t.Error("a pause of all processes ended a rank")
}

// pauseOfAll stops all processes for longer than the time-out, then only rank 1. It returns the last line of rank 0. If
// a rank ends before rank 1 is stopped, it returns the line of that rank as ended.
func pauseOfAll(t *testing.T, limit time.Duration) (line, ended string) {
	const size = 2
	ranks := ranktest.Start(t, roleVariable, size, func(rank int, meeting string) any {
		return role{Rank: rank, Size: size, Address: meeting, Timeout: limit, Bytes: 64 << 10}
	})
	all := func(s syscall.Signal) {
		for rank := range size {
			ranks.Signal(rank, s)
		}
	}
	for rank := range size {
		if line := ranks.Expect(rank, ""); line != "round" {
			return "", line
		}
	}
	all(syscall.SIGSTOP)
	time.Sleep(limit + limit/3)
	all(syscall.SIGCONT)
	all(syscall.SIGUSR1)
	for rank := range size {
		if line := ranks.Expect(rank, ""); line != "round" {
			return "", line
		}
	}
	ranks.Signal(1, syscall.SIGSTOP)
	return ranks.Expect(0, ""), ""
}

// A process is lost during an all-reduce. The ranks use real rank discovery.
func TestLostProcessIsNamed(t *testing.T) {
	nativetest.Need(t, "gloo", gloo.LibraryName)
	for _, c := range []struct {
		name   string
		victim int
		signal syscall.Signal
	}{
		{"rank 0 is killed", 0, syscall.SIGKILL},
		{"rank 1 is killed", 1, syscall.SIGKILL},
		{"rank 2 stops", 2, syscall.SIGSTOP},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const size = 3
			ranks := ranktest.Start(t, roleVariable, size, func(rank int, meeting string) any {
				return role{Rank: rank, Size: size, Address: meeting, Bytes: 16 << 20}
			})
			for rank := range size {
				ranks.Expect(rank, "round")
			}
			ranks.Signal(c.victim, c.signal)
			for rank := range size {
				if rank != c.victim {
					ranks.Expect(rank, fmt.Sprintf("peer %d: ", c.victim))
				}
			}
		})
	}
}
