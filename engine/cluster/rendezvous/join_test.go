package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/engine/handshake"
)

func TestRanksMeet(t *testing.T) {
	for _, size := range []int{1, 2, 3, 7, 40} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				ranks := make([]Options, size)
				for i := range ranks {
					rank := (i + size/2) % size // rank 0 is not the first to arrive
					ranks[i] = n.options(rank, size)
					ranks[i].Endpoint = fmt.Sprintf("endpoint %d", rank)
					ranks[i].Host = fmt.Sprintf("host %d", rank%2)
				}
				results := joinAll(ranks)
				defer closeJoined(results)
				for i, result := range results {
					if result.err != nil {
						t.Fatalf("rank %d: %v", ranks[i].Rank, result.err)
					}
					if got := result.group.Rank(); got != ranks[i].Rank || result.group.Size() != size {
						t.Errorf("got rank %d of %d, want %d of %d", got, result.group.Size(), ranks[i].Rank, size)
					}
					for rank, m := range result.group.Members() {
						want := Member{Rank: rank, LocalRank: rank / 2, PID: m.PID, Host: fmt.Sprintf("host %d",
							rank%2), Name: m.Name, Endpoint: fmt.Sprintf("endpoint %d", rank)}
						if m != want || m.PID <= 0 {
							t.Errorf("got member %+v, want %+v", m, want)
						}
					}
				}
			})
		})
	}
}

func TestUnknownLocalRanksTakeFreeNumbers(t *testing.T) {
	members := []Member{{LocalRank: -1, Host: "a"}, {LocalRank: 0, Host: "a"}, {LocalRank: -1, Host: "b"},
		{LocalRank: -1, Host: "a"}, {LocalRank: 1, Host: "b"}}
	fillLocalRanks(members)
	var got []int
	for _, m := range members {
		got = append(got, m.LocalRank)
	}
	if want := []int{1, 0, 0, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRanksThatWereNotStartedAlikeAreRefusedEverywhere(t *testing.T) {
	const config = "model = \"resnet50\"\nlr = 0.1\nseed = 1\n"
	who := Member{Name: hostName(), PID: os.Getpid()}.who()
	tests := []struct {
		name   string
		change func(o *Options) // changes the options of rank 2
		want   string           // error of every rank
	}{
		{"another world size", func(o *Options) { o.WorldSize = 5 },
			"rank 2 (" + who + ") does not agree with rank 0: world size is 5, but rank 0 has 3"},
		{"another version", func(o *Options) { o.Facts[0].Value = "1.1" },
			"rank 2 (" + who + `) does not agree with rank 0: version is "1.1", but rank 0 has "1.0"`},
		{"another configuration", func(o *Options) { o.Facts[1].Value = strings.Replace(config, "0.1", "0.2", 1) },
			"rank 2 (" + who +
				`) does not agree with rank 0: config (line 2) is "lr = 0.2", but rank 0 has "lr = 0.1"`},
		{"a longer configuration", func(o *Options) { o.Facts[1].Value += "new = 1" },
			"rank 2 (" + who + `) does not agree with rank 0: config (line 4) is "new = 1", but rank 0 has ""`},
		{"a fact more and a fact less", func(o *Options) { o.Facts[0].Name = "build" },
			"rank 2 (" + who + `) does not agree with rank 0: build is "1.0", but rank 0 has none; version is none, but rank 0 has "1.0"`},
		{"several things", func(o *Options) { o.WorldSize, o.Facts[0].Value = 4, "2" },
			"rank 2 (" + who +
				`) does not agree with rank 0: world size is 4, but rank 0 has 3; version is "2", but rank 0 has "1.0"`},
		{"the rank of another", func(o *Options) { o.Rank = 1 }, "two processes claim to be rank 1: " + who + " and " +
			who},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				var ranks []Options
				for rank := range 3 {
					o := n.options(rank, 3)
					o.Facts = []Fact{{"version", "1.0"}, {"config", config}}
					ranks = append(ranks, o)
				}
				test.change(&ranks[2])
				ranks[2].Dial = func(ctx context.Context, address string) (net.Conn, error) {
					time.Sleep(time.Second) // the other ranks are already waiting
					return n.dial(ctx, address)
				}
				began := time.Now()
				for i, result := range joinAll(ranks) {
					if result.err == nil || result.err.Error() != test.want {
						t.Errorf("rank %d:\ngot  %v\nwant %s", i, result.err, test.want)
					}
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %v, want to fail at once", took)
				}
			})
		})
	}
}

func TestLateRanksHearWhyTheStartFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		ranks := []Options{n.options(0, 3), n.options(1, 3), n.options(2, 3)}
		ranks[1].Facts = []Fact{{"version", "2"}}
		ranks[2].Dial = func(ctx context.Context, address string) (net.Conn, error) {
			time.Sleep(2 * time.Second)
			return n.dial(ctx, address)
		}
		began := time.Now()
		for rank, result := range joinAll(ranks) {
			var disagree *DisagreeError
			if !errors.As(result.err, &disagree) || disagree.Rank != 1 {
				t.Errorf("rank %d got %v, want that rank 1 does not agree", rank, result.err)
			}
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("took %v, want no longer than until the last rank came", took)
		}
		n = newNetwork()
		ranks = []Options{n.options(0, 3), n.options(1, 3)} // one rank never arrives
		ranks[1].Facts = []Fact{{"version", "2"}}
		began = time.Now()
		for rank, result := range joinAll(ranks) {
			var disagree *DisagreeError
			if !errors.As(result.err, &disagree) || disagree.Rank != 1 {
				t.Errorf("rank %d got %v, want that rank 1 does not agree", rank, result.err)
			}
		}
		if took := time.Since(began); took > lingerTime+2*time.Second {
			t.Errorf("took %v, want %v at most", took, lingerTime)
		}
	})
}

func TestLongValuesAreShownWhereTheyDiffer(t *testing.T) {
	long := strings.Repeat("a", 300)
	got := difference("model", long+"1"+long, long+"2"+long)
	if !strings.Contains(got.Value, "a1a") || !strings.Contains(got.Rank0, "a2a") || len(got.Value) > maxExcerpt+10 {
		t.Errorf("got %+v, want excerpts around the digits", got)
	}
}

func TestAnotherGenerationDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		first := make(chan joined)
		go func() {
			o := n.options(0, 2)
			o.Generation = 4
			g, err := Join(context.Background(), o)
			first <- joined{g, err}
		}()
		stale := n.options(1, 2)
		stale.Generation = 3
		if _, err := Join(context.Background(), stale); err == nil ||
			!strings.Contains(err.Error(), "generation is 3, but rank 0 has 4") {
			t.Errorf("before: got %v, want a refusal", err)
		}
		present := n.options(1, 2)
		present.Generation = 4
		g, err := Join(context.Background(), present)
		if err != nil {
			t.Fatal(err)
		}
		groups := []*Group{(<-first).group, g}
		defer closeAll(groups)
		if _, err := Join(context.Background(), stale); err == nil ||
			!strings.Contains(err.Error(), "generation is 3, but rank 0 has 4") {
			t.Errorf("after: got %v, want a refusal", err)
		}
		if _, err := Join(context.Background(), present); err == nil ||
			!strings.Contains(err.Error(), "the group of 2 ranks is complete: rank 1 is ") {
			t.Errorf("late: got %v, want that the group is complete", err)
		}
		for rank, err := range together(groups, func(g *Group) error {
			return g.Barrier(context.Background(), "still there")
		}) {
			if err != nil {
				t.Errorf("rank %d suffered: %v", rank, err)
			}
		}
	})
}

func TestWhoIsMissingIsNamedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		ranks := []Options{n.options(0, 7), n.options(2, 7), n.options(5, 7)}
		for i := range ranks {
			ranks[i].Timeout = 30 * time.Second
		}
		ranks[2].Timeout = 10 * time.Second // this rank is the first to give up
		began := time.Now()
		results := joinAll(ranks)
		if took := time.Since(began); took < 30*time.Second || took > 34*time.Second {
			t.Errorf("took %v, want 30s", took)
		}
		for i, want := range []string{
			"rendezvous at rank0:1: waited 30s for 7 ranks, missing: ranks 1, 3 to 6",
			"rendezvous at rank0:1: waited 30s for 7 ranks, missing: ranks 1, 3 to 6",
			"rendezvous at rank0:1: waited 11s for 7 ranks, missing: ranks 1, 3, 4, 6",
		} {
			var missing *MissingError
			if !errors.As(results[i].err, &missing) || missing.Error() != want {
				t.Errorf("rank %d: got  %v\nwant %s", ranks[i].Rank, results[i].err, want)
			}
		}
	})
}

// The list of missing ranks must not contain rank 0 while its process waits, even before its own registration is
// complete.
func TestRank0IsNeverMissingAtItsOwnMeeting(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	s := newServer(Options{WorldSize: 3, Log: slog.New(slog.DiscardHandler)}, listener)
	if got, want := s.missing("start").Error(), "for 3 ranks, missing: ranks 1, 2"; !strings.HasSuffix(got, want) {
		t.Errorf("no rank is registered: got %q, want it to end with %q", got, want)
	}
	s.peers[2] = new(peer)
	if got, want := s.missing("start").Error(), "for 3 ranks, missing: rank 1"; !strings.HasSuffix(got, want) {
		t.Errorf("rank 2 is registered: got %q, want it to end with %q", got, want)
	}
	_, err = Join(t.Context(), Options{Rank: 0, WorldSize: 2, Address: address, Listener: listener,
		Timeout: time.Nanosecond})
	var missing *MissingError
	if !errors.As(err, &missing) || !slices.Equal(missing.Missing, []int{1}) || missing.WorldSize != 2 {
		t.Errorf("a time-out that is over at once: got %v, want that rank 1 of 2 is missing", err)
	}
}

func TestRank0IsNotThere(t *testing.T) {
	tests := []struct {
		name string
		dial func(ctx context.Context, address string) (net.Conn, error)
		want string
	}{
		{"no server listens", func(context.Context, string) (net.Conn, error) { return nil, errNobody },
			"connect to rank 0 at rank0:1: no connection within 20s: connection refused"},
		{"no server answers", func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil,
				ctx.Err()
		}, "connect to rank 0 at rank0:1: no connection within 20s: context deadline exceeded"},
		{"another program answers", func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				far.Read(make([]byte, 64))
				far.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
				far.Close()
			}()
			return near, nil
		}, `does not use the rendezvous protocol (got "HTTP/1.1")`},
		{"a silent program takes the connection", func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				for {
					if _, err := far.Read(make([]byte, 64)); err != nil {
						return
					}
				}
			}()
			return near, nil
		}, "connect to rank 0 at rank0:1: no connection within 20s: read pipe: i/o timeout"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := Join(context.Background(),
					Options{Rank: 1, WorldSize: 2, Address: "rank0:1", Timeout: 20 * time.Second, Dial: test.dial})
				var unreachable *UnreachableError
				if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got  %v\nwant %s", err, test.want)
				}
				if took := time.Since(began); took < 20*time.Second || took > 22*time.Second {
					t.Errorf("took %v, want 20s", took)
				}
			})
		})
	}
}

func TestCancelledJoinTellsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		ctx, cancel := context.WithCancelCause(context.Background())
		stopped := errors.New("stopped by the user")
		time.AfterFunc(3*time.Second, func() { cancel(stopped) })
		other := make(chan error)
		go func() {
			_, err := Join(context.Background(), n.options(1, 3))
			other <- err
		}()
		began := time.Now()
		if _, err := Join(ctx, n.options(0, 3)); !errors.Is(err, stopped) {
			t.Errorf("got %v, want %v", err, stopped)
		}
		if err := <-other; err == nil ||
			!strings.Contains(err.Error(), "rank 0 is lost: it stopped waiting: stopped by the user") {
			t.Errorf("the other rank got %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v, want about 3s", took)
		}
	})
}

func TestRankMayComeAgainBeforeTheGroupIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		ranks := []Options{n.options(0, 3), n.options(1, 3), n.options(2, 3)}
		dials := 0
		ranks[1].Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := n.dial(ctx, address)
			if dials++; dials == 1 && err == nil {
				time.AfterFunc(3*time.Second, func() { conn.Close() })
			}
			return conn, err
		}
		ranks[2].Dial = func(ctx context.Context, address string) (net.Conn, error) {
			time.Sleep(10 * time.Second)
			return n.dial(ctx, address)
		}
		results := joinAll(ranks)
		defer closeJoined(results)
		for rank, result := range results {
			if result.err != nil {
				t.Errorf("rank %d: %v", rank, result.err)
			}
		}
		if dials != 2 {
			t.Errorf("rank 1 connected %d times, want 2", dials)
		}
	})
}

// If rank 0 has another version, a rank must end immediately. Its error must state both versions.
func TestAnotherVersionIsNamed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	next := protocol("")
	next.Name[7]++
	go func() {
		conn, err := listener.Accept() // does not answer a second attempt
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = next.Answer(conn, func([]byte) error { return nil })
	}()
	_, err = Join(t.Context(), Options{Rank: 1, WorldSize: 2, Address: listener.Addr().String(), Timeout: patience})
	if want := fmt.Sprintf("got version %d, want %d", next.Name[7], magic[7]); !errors.Is(err, ErrVersion) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// If there are several addresses, a server that refuses a rank may belong to another run. It may have another token,
// version or certificate, or another program may intercept the connection. The rank must then look for its own rank 0
// at the other addresses.
func TestServersOfAnotherRunArePassedOver(t *testing.T) {
	certificate := &handshake.CertificateError{Err: errors.New("signed by unknown authority")}
	for _, foreign := range []error{ErrToken, fmt.Errorf("%w: got version 9", ErrVersion), certificate,
		fmt.Errorf("TLS: %w", handshake.ErrIntercepted)} {
		several := Options{Address: "rank0:1", Alternatives: []string{"rank0:2"}}
		several.Log = slog.New(slog.DiscardHandler)
		one := several
		one.Alternatives = nil
		synctest.Test(t, func(t *testing.T) {
			single, s := search{}, search{}
			if !single.over(t.Context(), one, false, foreign) || !errors.Is(single.failure, foreign) {
				t.Errorf("one address: got %v, want %v", single.failure, foreign)
			}
			if s.over(t.Context(), several, false, foreign) || s.failure != nil {
				t.Errorf("several addresses: got %v at once", s.failure)
			}
			s.over(t.Context(), several, false, errNobody)
			if s.last == nil || !errors.Is(s.last, foreign) {
				t.Errorf("got the last error %v, want %v", s.last, foreign)
			}
			time.Sleep(tokenPatience)
			if !s.over(t.Context(), several, false, foreign) || !errors.Is(s.failure, foreign) {
				t.Errorf("later: got %v, want %v", s.failure, foreign)
			}
		})
	}
}

func TestTokensMustMatch(t *testing.T) {
	right, wrong := newToken(), newToken()
	tests := []struct {
		name         string
		rank0, rank1 Token
		joins        bool
	}{
		{"the same", right, right, true},
		{"none at all", "", "", true},
		{"another", right, wrong, false},
		{"rank 1 has none", right, "", false},
		{"rank 0 has none", "", right, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				ranks := []Options{n.options(0, 2), n.options(1, 2)}
				ranks[0].Token, ranks[1].Token = test.rank0, test.rank1
				results := joinAll(ranks)
				defer closeJoined(results)
				if test.joins {
					if err := errors.Join(results[0].err, results[1].err); err != nil {
						t.Fatal(err)
					}
					return
				}
				if !errors.Is(results[1].err, ErrToken) {
					t.Errorf("rank 1 got %v, want ErrToken", results[1].err)
				}
				var missing *MissingError
				if !errors.As(results[0].err, &missing) {
					t.Errorf("rank 0 got %v, want a *MissingError: a stranger must not end the group", results[0].err)
				}
			})
		})
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	long := strings.Repeat("x", 2*maxFrame)
	tests := []struct {
		name    string
		options Options
		want    string
	}{
		{"rank beyond the world", Options{Rank: 2, WorldSize: 2}, "got rank 2 and world size 2"},
		{"no world", Options{}, "got rank 0 and world size 0"},
		{"negative time", Options{WorldSize: 1, Timeout: -1}, "time-outs"},
		{"short token", Options{WorldSize: 1, Token: "secret"}, "the token has 6 characters, want at least 16"},
		{"long endpoint", Options{WorldSize: 1, Endpoint: long}, "endpoint"},
		{"long facts", Options{WorldSize: 1, Facts: []Fact{{"config", long}}}, "shorten the facts"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNetwork()
			test.options.Listener = n
			if _, err := Join(context.Background(), test.options); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, err := n.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Error("the listener was left open")
			}
		})
	}
}

func TestRankLists(t *testing.T) {
	tests := []struct {
		ranks []int
		count int
		want  string
	}{
		{[]int{3}, 1, "rank 3"},
		{[]int{0, 1}, 2, "ranks 0, 1"},
		{[]int{0, 1, 2, 5, 7, 8, 9}, 7, "ranks 0 to 2, 5, 7 to 9"},
		{[]int{4, 6}, 9, "ranks 4, 6 and 7 more"},
	}
	for _, test := range tests {
		if got := RankList(test.ranks, test.count); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestALoopbackInterfaceThatIsDown(t *testing.T) {
	timeout := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	if !isTimeout(timeout) || isTimeout(syscall.ECONNREFUSED) {
		t.Error("a time-out is not detected, or a refusal is one")
	}
	up, down := net.Interface{Name: "lo", Flags: net.FlagLoopback | net.FlagUp},
		net.Interface{Name: "lo", Flags: net.FlagLoopback}
	for _, c := range []struct {
		all  []net.Interface
		err  error
		want bool
	}{{[]net.Interface{up}, nil, false}, {[]net.Interface{down, {Name: "eth0", Flags: net.FlagUp}}, nil, true},
		{nil, syscall.EACCES, false}} {
		if got := loopbackIsDown(func() ([]net.Interface, error) { return c.all, c.err }); got != c.want {
			t.Errorf("%v, %v: got %t, want %t", c.all, c.err, got, c.want)
		}
	}
}
