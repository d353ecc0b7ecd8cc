//go:build cgo && linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// meet connects ranks with the given configurations, and returns the error of each.
func meet(t *testing.T, limit time.Duration, configs ...Config) []error {
	t.Helper()
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	errs := make([]error, len(configs))
	var wg sync.WaitGroup
	for i, c := range configs {
		wg.Go(func() {
			comm, err := Connect(ctx, c)
			if errs[i] = err; err == nil {
				comm.Close()
			}
		})
	}
	wg.Wait()
	return errs
}

func TestRanksThatDoNotFitAreToldWhy(t *testing.T) {
	for _, c := range []struct {
		name string
		odd  Config // an additional rank; ranks 0 and 1 of a group of 3 have the usual configuration
		says string
		all  bool // all ranks must fail, not only the additional one
	}{
		{"another size", Config{Rank: 2, Size: 4}, "rank 2 has world size 4, rank 0 has 3", true},
		{"a rank twice", Config{Rank: 1, Size: 3}, "two processes have rank 1", true},
		{"another token", Config{Rank: 2, Size: 3, Token: "guessed"}, "another token", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := NewAddress()
			ours := func(rank int) Config { return Config{Rank: rank, Size: 3, Address: address, Token: "secret"} }
			c.odd.Address = address
			if c.odd.Token == "" {
				c.odd.Token = "secret"
			}
			if c.all {
				errs := meet(t, time.Minute, ours(0), ours(1), c.odd)
				for i, err := range errs {
					// Rank 0 may have failed before this rank connects. This rank then cannot learn the reason.
					late := i != 0 && errs[0] != nil
					if err == nil || !strings.Contains(err.Error(), c.says) && !late {
						t.Errorf("process %d: got %v, want %q", i, err, c.says)
					}
				}
				return
			}
			need(t)
			group := make(chan []error)
			go func() { group <- meet(t, time.Minute, ours(0), ours(1)) }()
			if err := meet(t, time.Minute, c.odd)[0]; err == nil || !strings.Contains(err.Error(), c.says) {
				// Despite the additional rank, ranks 0 and 1 must wait for rank 2.
				t.Errorf("the odd one: got %v, want %q", err, c.says)
			}
			last := meet(t, time.Minute, ours(2))
			if err := errors.Join(append(<-group, last...)...); err != nil {
				t.Errorf("the group: %v", err)
			}
		})
	}
}

func TestMissingRanksAreNamed(t *testing.T) {
	address := NewAddress()
	ours := func(rank int) Config { return Config{Rank: rank, Size: 4, Address: address} }
	var errs []error
	for _, limit := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		// a busy machine needs a longer time limit
		errs = meet(t, limit, ours(0), ours(2))
		if errs[1] == nil {
			t.Error("rank 2: no error")
		}
		if !errors.Is(errs[0], context.DeadlineExceeded) ||
			!strings.Contains(errs[0].Error(), "missing: rank 1, 2, 3") {
			// rank 2 had joined; if it had not, the machine was too busy for this limit
			break
		}
	}
	if !errors.Is(errs[0], context.DeadlineExceeded) || !strings.Contains(errs[0].Error(), "missing: rank 1, 3") {
		t.Errorf("rank 0: got %v, want that ranks 1 and 3 have not come", errs[0])
	}
	errs = meet(t, 100*time.Millisecond, ours(2))
	if !errors.Is(errs[0], context.DeadlineExceeded) || !strings.Contains(errs[0].Error(), "rank 0 does not listen") {
		t.Errorf("without rank 0: got %v, want that it does not listen", errs[0])
	}
}

func TestGarbageDoesNotDisturbTheMeeting(t *testing.T) {
	need(t)
	c := Config{Size: 2, Address: NewAddress()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := make(chan error, 1)
	go func() {
		comm, err := Connect(ctx, c)
		if err == nil {
			err = comm.Close()
		}
		first <- err
	}()
	for i, garbage := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 4096), greetingMagic} {
		var conn net.Conn
		err := errors.New("not yet")
		for start := time.Now(); err != nil && time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
			conn, err = net.DialUnix("unix", nil, c.socket())
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, garbage)
		if i != 2 { // connection 2 stays open
			conn.Close()
		}
	}
	second := c
	second.Rank = 1
	comm, err := Connect(ctx, second)
	if err != nil {
		t.Fatalf("rank 1: %v", err)
	}
	comm.Close()
	if err := <-first; err != nil {
		t.Errorf("rank 0: %v", err)
	}
}

func TestRankZeroThatDiesWhileOthersWait(t *testing.T) {
	need(t)
	c := Config{Rank: 1, Size: 3, Address: NewAddress()}
	l, err := net.ListenUnix("unix", c.socket())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
		l.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = Connect(ctx, c)
	var peer *collective.PeerError
	if !errors.As(err, &peer) || peer.Rank != 0 || !errors.Is(err, collective.ErrDied) {
		if !strings.Contains(fmt.Sprint(err), "rank 0") { // rank 0 closed the connection before it sent the greeting
			t.Errorf("got %v, want that rank 0 died", err)
		}
	}
}

func TestWrongConfigurations(t *testing.T) {
	need(t)
	for _, c := range []Config{
		{Size: 0}, {Rank: 2, Size: 2, Address: "x"}, {Rank: -1, Size: 2, Address: "x"}, {Size: 2},
		{Size: 1, StageBytes: 63},
		{Size: 2, Address: strings.Repeat("x", 101)},
	} {
		if comm, err := Connect(t.Context(), c); err == nil {
			comm.Close()
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestMissingLibraryIsUnavailable(t *testing.T) {
	t.Setenv("HETERO_LIB_DIR", t.TempDir())
	if err := Available(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), LibraryName) {
		t.Errorf("got %v, want ErrUnavailable for want of %s", err, LibraryName)
	}
	if _, err := Connect(t.Context(), Config{Size: 1}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("connect: got %v, want ErrUnavailable", err)
	}
	if err := os.WriteFile(os.Getenv("HETERO_LIB_DIR")+"/"+LibraryName, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Available(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a file that is no library: got %v, want ErrUnavailable", err)
	}
}

// If this process has no file descriptors left, the error must state this. It must not only state that a rank is
// missing.
func TestALackOfFileDescriptorsIsNamed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := acceptBy(ctx, Config{Size: 2, Address: "here"}, func() (*net.UnixConn, error) {
		if ctx.Err() != nil {
			return nil, net.ErrClosed
		}
		return nil, syscall.EMFILE
	})
	if !errors.Is(err, syscall.EMFILE) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "missing: rank 1") {
		t.Errorf("got %v, want the missing rank and the lack of file descriptors", err)
	}
}
