package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// frost is a connection that can freeze. It then holds back all sent bytes, as if the process were stopped.
type frost struct {
	net.Conn
	frozen atomic.Bool
	thaw   chan struct{}
}

func (f *frost) Write(p []byte) (int, error) {
	if f.frozen.Load() {
		<-f.thaw
	}
	return f.Conn.Write(p)
}

// lost waits for a group to break and checks the error.
func lost(t *testing.T, g *Group, rank int, cause string) {
	t.Helper()
	<-g.Broken()
	var gone *LostError
	if err := g.Err(); !errors.As(err, &gone) || gone.Rank != rank || !strings.Contains(gone.Cause, cause) {
		t.Errorf("rank %d got %v, want rank %d gone: %s", g.Rank(), err, rank, cause)
	}
}

func TestLossOfARankReachesEveryRank(t *testing.T) {
	tests := []struct {
		name   string
		rank   int // lost rank
		cause  string
		within time.Duration
		lose   func(g *Group, conn *frost)
	}{
		{"a connection that closes", 2, "its connection was closed (the process ended or was killed)",
			100 * time.Millisecond,
			func(_ *Group, conn *frost) { conn.Close() }},
		{"a process that is stopped", 1, "no message for ", 6 * time.Second, func(_ *Group, conn *frost) {
			conn.frozen.Store(true)
		}},
		{"a rank that aborts", 3, "the loss is not a number", 100 * time.Millisecond, func(g *Group, _ *frost) {
			g.Abort(errors.New("the loss is not a number"))
		}},
		{"rank 0 aborts", 0, "disk full", 100 * time.Millisecond, func(g *Group, _ *frost) {
			g.Abort(errors.New("disk full"))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				ranks := []Options{n.options(0, 4), n.options(1, 4), n.options(2, 4), n.options(3, 4)}
				frosts := make([]*frost, 4)
				for rank := 1; rank < 4; rank++ {
					ranks[rank].Dial = func(ctx context.Context, address string) (net.Conn, error) {
						conn, err := n.dial(ctx, address)
						frosts[rank] = &frost{Conn: conn, thaw: make(chan struct{})}
						return frosts[rank], err
					}
				}
				results := joinAll(ranks)
				var groups []*Group
				for rank, result := range results {
					if result.err != nil {
						t.Fatalf("rank %d: %v", rank, result.err)
					}
					groups = append(groups, result.group)
				}
				time.Sleep(time.Minute) // nothing else happens meanwhile
				waiting := make(chan error, 1)
				survivor := groups[(test.rank+1)%4]
				go func() { waiting <- survivor.Barrier(context.Background(), "step") }()
				synctest.Wait()
				began := time.Now()
				test.lose(groups[test.rank], frosts[test.rank])
				for rank, g := range groups {
					if rank != test.rank || test.cause == "disk full" {
						lost(t, g, test.rank, test.cause)
					}
				}
				if took := time.Since(began); took > test.within {
					t.Errorf("took %v, want at most %v", took, test.within)
				}
				if err := <-waiting; !errors.Is(err, survivor.Err()) {
					t.Errorf("the barrier ended with %v, want %v", err, survivor.Err())
				}
				if _, err := survivor.Get(context.Background(), "k"); !errors.Is(err, survivor.Err()) {
					t.Errorf("a later call got %v, want %v", err, survivor.Err())
				}
				if f := frosts[test.rank]; f != nil {
					close(f.thaw)
					<-groups[test.rank].Broken() // the rank notices that the group has excluded it
				}
				closeAll(groups)
			})
		})
	}
}

func TestLossOfRank0ReachesEveryRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 3)
		server := groups[0].server
		server.mu.Lock()
		for _, p := range server.peers[1:] {
			p.link.conn.Close() // like the end of the rank's process
		}
		server.mu.Unlock()
		lost(t, groups[1], 0, "its connection was closed (the process ended or was killed)")
		lost(t, groups[2], 0, "its connection was closed (the process ended or was killed)")
		closeAll(groups)
	})
}

func TestLeavingInPeaceBreaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 3)
		ctx := context.Background()
		inBarrier := make(chan error)
		go func() { inBarrier <- groups[0].Barrier(ctx, "b") }()
		synctest.Wait()
		groups[2].Close()
		want := "rank 2 is lost: it has left the group"
		if err := <-inBarrier; err == nil || err.Error() != want {
			t.Errorf("who waited for it got %v, want %s", err, want)
		}
		if err := groups[1].Barrier(ctx, "c"); err == nil || err.Error() != want {
			t.Errorf("who needs it got %v, want %s", err, want)
		}
		if err := groups[1].Set(ctx, "k", nil); err != nil {
			t.Errorf("who does not need it got %v", err)
		}
		if err := groups[2].Set(ctx, "k", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("the one that left got %v, want ErrClosed", err)
		}
		inGet := make(chan error)
		go func() {
			_, err := groups[1].Get(ctx, "absent")
			inGet <- err
		}()
		synctest.Wait()
		groups[0].Close()
		if err := <-inGet; err == nil || err.Error() != "rank 0 is lost: it has left the group" {
			t.Errorf("who waited for rank 0 got %v", err)
		}
		if err := groups[1].Err(); err != nil {
			t.Errorf("the last rank's group broke: %v", err)
		}
		groups[1].Close()
		groups[1].Close() // a second call has no effect
	})
}

func TestAProcessThatSleptBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPulse(8 * time.Second)
		defer p.stop()
		for i, pause := range []time.Duration{0, 900 * time.Millisecond, 30 * time.Second, 0} {
			time.Sleep(pause)
			slept, ok := p.next(nil)
			if want := pause > 10*time.Second; slept != want || !ok {
				t.Errorf("beat %d: slept is %v, want %v", i, slept, want)
			}
		}
	})
}

func TestRankThatDoesNotReadIsCutOff(t *testing.T) {
	o := newOutbox()
	frame := make([]byte, maxFrame)
	n := 0
	for ; o.push(kindReply, frame); n++ {
		if n > maxOutbox/maxFrame {
			t.Fatalf("took %d frames of a mebibyte, want at most %d bytes", n, maxOutbox)
		}
	}
	if n != maxOutbox/maxFrame {
		t.Errorf("took %d frames, want %d", n, maxOutbox/maxFrame)
	}
}

func TestGroupsOfManyRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 300)
		for rank, err := range together(groups, func(g *Group) error {
			values, err := g.Gather(context.Background(), "ranks", fmt.Append(nil, g.Rank()))
			if err == nil && string(values[299]) != "299" {
				err = fmt.Errorf("got %q for rank 299", values[299])
			}
			return err
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
		groups[17].link.conn.Close()
		lost(t, groups[299], 17, "closed")
		closeAll(groups)
	})
}
