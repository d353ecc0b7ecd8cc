package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

// ports returns loopback addresses on which no program listens.
func ports(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for len(addresses) < n {
		if address := fmt.Sprintf("127.0.0.1:%d", porttest.Free(t)); !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// store behaves like the server of another program: it reads, and sends data of another protocol.
func store(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = conn.Write([]byte("\x00\x01 a store"))
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
}

func TestRanksMeetAtTheFirstFreeAddress(t *testing.T) {
	at := ports(t, 3)
	store(t, at[0])
	other := Options{Rank: 0, WorldSize: 2, LocalRank: -1, Address: at[1], Alternatives: at[2:], Generation: 7,
		Token: "the token of another", Timeout: time.Minute}
	log := &recorder{}
	other.Log = log.logger()
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() { // rank 0 of another start, which waits for its own rank 1
		_, err := Join(ctx, other)
		waits <- err
	}()
	awaitListener(t, at[1])
	var ranks []Options
	for rank := range 2 {
		ranks = append(ranks, Options{Rank: rank, WorldSize: 2, LocalRank: -1, Address: at[0], Alternatives: at[1:],
			Generation: 8, Timeout: time.Minute})
	}
	results := joinAll(ranks)
	defer closeJoined(results)
	for rank, result := range results {
		if result.err != nil {
			t.Errorf("rank %d: %v", rank, result.err)
		}
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("the other start got %v, want that it still waited", err)
	}
}

// awaitListener returns when a process listens at an address.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Without tokens, ranks must distinguish two starts by the generation. This must hold for both starts, and after one
// has failed.
func TestAnotherStartIsPassedBy(t *testing.T) {
	for _, failed := range []bool{false, true} {
		at := ports(t, 2)
		first := Options{Rank: 0, WorldSize: 2, LocalRank: -1, Address: at[0], Generation: 7, Timeout: time.Minute,
			Facts: []Fact{{"version", "1"}}}
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() {
			_, err := Join(ctx, first)
			waits <- err
		}()
		awaitListener(t, at[0])
		if failed { // rank 0 listens for a while, to report the cause to its own ranks
			wrong := first
			wrong.Rank, wrong.Facts = 1, []Fact{{"version", "2"}}
			if _, err := Join(ctx, wrong); !errors.As(err, new(*DisagreeError)) {
				t.Fatalf("got %v, want a disagreement", err)
			}
		}
		var ranks []Options
		for rank := range 2 {
			ranks = append(ranks, Options{Rank: rank, WorldSize: 2, LocalRank: -1, Address: at[0], Alternatives: at[1:],
				Generation: 8, Timeout: time.Minute})
		}
		results := joinAll(ranks)
		for rank, result := range results {
			if result.err != nil {
				t.Errorf("failed %v, rank %d: %v", failed, rank, result.err)
			}
		}
		closeJoined(results)
		cancel()
		if err := <-waits; failed != errors.As(err, new(*DisagreeError)) {
			t.Errorf("failed %v: the first start got %v", failed, err)
		}
	}
}

func TestNoAddressIsFree(t *testing.T) {
	at := ports(t, 2)
	store(t, at[0])
	store(t, at[1])
	_, err := Join(t.Context(), Options{Rank: 0, WorldSize: 2, LocalRank: -1, Address: at[0], Alternatives: at[1:],
		Timeout: time.Minute})
	var listen *ListenError
	if !errors.As(err, &listen) || !strings.Contains(err.Error(), at[0]+", "+at[1]) {
		t.Errorf("got %v, want both addresses", err)
	}
}
