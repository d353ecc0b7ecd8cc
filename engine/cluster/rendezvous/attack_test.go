package rendezvous

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/handshake"
)

// zeros is shared by all attackers, so that their memory does not count as memory of the group.
var zeros = make([]byte, 1<<20)

// attacks are the actions of strangers on a connection. Each returns when it is complete.
var attacks = []struct {
	name string
	do   func(conn net.Conn)
}{
	{"connect and go", func(net.Conn) {}},
	{"connect and wait", func(conn net.Conn) { conn.Read(make([]byte, 1)) }},
	{"a web browser", func(conn net.Conn) {
		conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		conn.Read(make([]byte, 1))
	}},
	{"random bytes", func(conn net.Conn) {
		noise := make([]byte, 4096)
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		conn.Write(noise)
		conn.Read(make([]byte, 1))
	}},
	{"slowly, byte by byte", func(conn net.Conn) {
		for _, b := range append(magic[:], make([]byte, 500)...) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}},
	{"without the token", func(conn net.Conn) { _, _ = greet(conn, "", &handshake.TLS{Client: true}) }},
	{"with another token", func(conn net.Conn) { _, _ = greet(conn, newToken(), &handshake.TLS{Client: true}) }},
	{"a frame in place of the proof", func(conn net.Conn) {
		conn.Write(append(magic[:], make([]byte, handshake.NonceBytes)...))
		conn.Write(binary.BigEndian.AppendUint64(nil, 1<<63))
		conn.Write(zeros)
	}},
}

func TestStrangersDoNoHarm(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, token := listener.Addr().String(), newToken()
	said := &recorder{}
	options := func(rank int) Options {
		return Options{Rank: rank, WorldSize: 3, LocalRank: -1, Address: address, Token: token, Timeout: patience,
			Log: said.logger()}
	}
	goroutines := runtime.NumGoroutine()
	rankZero := options(0)
	rankZero.Listener = listener
	first := joinLater(rankZero)

	ctx, stop := context.WithCancel(context.Background())
	began := time.Now()
	var attackers sync.WaitGroup
	for i := range 64 {
		attackers.Go(func() { attack(ctx, address, i) })
	}
	time.Sleep(300 * time.Millisecond) // the attack begins before the other ranks connect
	others := joinAll([]Options{options(1), options(2)})
	groups := groupsOf(t, append([]joined{<-first}, others...))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 20 {
		for rank, err := range together(groups, func(g *Group) error {
			return g.Barrier(context.Background(), "step")
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
		door := groups[0].server.door
		if n := door.Len(); n > leastPending+pendingPerRank*3 {
			t.Errorf("%d connections in the handshake, want at most %d", n, leastPending+pendingPerRank*3)
		}
		time.Sleep(20 * time.Millisecond)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("the heap grew by %d bytes under attack", grown)
	}
	stop()
	attackers.Wait()
	closeAll(groups)
	if seconds := int(time.Since(began).Seconds()) + 2; said.count() > 2*seconds+2 { // one address: one line per second
		t.Errorf("%d log messages in %d s, want about one a second:\n%s", said.count(), seconds,
			strings.Join(said.messages, ""))
	}
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines are left, %d were there before", runtime.NumGoroutine(), goroutines)
			break
		}
	}
}

// attack connects repeatedly until the context ends.
func attack(ctx context.Context, address string, i int) {
	for ; ctx.Err() == nil; i++ {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		attacks[i%len(attacks)].do(conn)
		stop()
		conn.Close()
		time.Sleep(2 * time.Millisecond)
	}
}

// Without a token, any process of this machine may connect and send anything except a rank's messages.
func TestMalformedRegistrationIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	options := Options{WorldSize: 2, Address: address, Listener: listener, Timeout: patience}
	first := joinLater(options)
	valid := (&registration{member: Member{Rank: 1}, worldSize: 2}).encode()
	tests := []struct {
		name    string
		kind    kind
		payload []byte
	}{
		{"empty", kindRegister, nil},
		{"cut", kindRegister, valid[:len(valid)-1]},
		{"with more behind", kindRegister, append(valid[:len(valid):len(valid)], 0)},
		{"another kind", kindGather, valid},
		{"texts without end", kindRegister, append(make([]byte, 12), 255, 255, 255, 255)},
	}
	for _, test := range tests {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		l, err := greet(conn, "", &handshake.TLS{Client: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.write(test.kind, test.payload); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(patience))
		if k, _, err := l.read(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got a frame of kind %d and error %v, want the end", test.name, k, err)
		}
		conn.Close()
	}
	g, err := Join(context.Background(), Options{Rank: 1, WorldSize: 2, Address: address, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	result := <-first
	if result.err != nil {
		t.Fatal(result.err)
	}
	closeAll([]*Group{result.group, g})
}

// Strangers know the greeting, because it is public. They send it and keep the connection open. They connect again as
// soon as the server closes it.
func TestHeldGreetingsDoNotStopAStart(t *testing.T) {
	options := overLoopback(t, 3, plainListen)
	address, token := options(0).Address, options(0).Token
	first := joinLater(options(0))
	ctx, stop := context.WithCancel(context.Background())
	var strangers sync.WaitGroup
	var held atomic.Int64 // number of open connections whose greeting the server has answered
	for range 100 {
		strangers.Go(func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				release := context.AfterFunc(ctx, func() { conn.Close() })
				conn.Write(append(magic[:], make([]byte, handshake.NonceBytes)...))
				if _, err := protocol(token).ReadGreeting(conn); err == nil {
					held.Add(1)
					conn.Read(make([]byte, 1))
					held.Add(-1)
				}
				release()
				conn.Close()
			}
		})
	}
	for deadline := time.Now().Add(patience); held.Load() < 100; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server keeps %d of 100 connections, so it keeps others waiting", held.Load())
		}
	}
	others := joinAll([]Options{options(1), options(2)})
	groups := groupsOf(t, append([]joined{<-first}, others...))
	stop()
	strangers.Wait()
	closeAll(groups)
}
