package rendezvous

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// zeros is shared, so that the memory of the attackers does not count as memory of the group.
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
	{"without the token", func(conn net.Conn) { _, _ = greet(conn, "") }},
	{"with another token", func(conn net.Conn) { _, _ = greet(conn, newToken()) }},
	{"a frame in place of the proof", func(conn net.Conn) {
		conn.Write(append(magic[:], make([]byte, nonceBytes)...))
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
		return Options{Rank: rank, WorldSize: 3, LocalRank: -1, Address: address, Token: token, Timeout: patience, Log: said.logger()}
	}
	goroutines := runtime.NumGoroutine()
	first := make(chan joined, 1)
	go func() {
		o := options(0)
		o.Listener = listener
		g, err := Join(context.Background(), o)
		first <- joined{g, err}
	}()

	ctx, stop := context.WithCancel(context.Background())
	began := time.Now()
	var attackers sync.WaitGroup
	for i := range 64 {
		attackers.Go(func() { attack(ctx, address, i) })
	}
	time.Sleep(300 * time.Millisecond) // the attack begins before the other ranks connect
	var groups []*Group
	for _, result := range joinAll([]Options{options(1), options(2)}) {
		if result.err != nil {
			t.Fatal(result.err)
		}
		groups = append(groups, result.group)
	}
	result := <-first
	if result.err != nil {
		t.Fatal(result.err)
	}
	groups = append([]*Group{result.group}, groups...)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 20 {
		for rank, err := range together(groups, func(g *Group) error { return g.Barrier(context.Background(), "step") }) {
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
		}
		door := result.group.server.door
		door.mu.Lock()
		if n := len(door.visits); n > pendingPerRank*3 {
			t.Errorf("%d connections in the handshake, want at most %d", n, pendingPerRank*3)
		}
		door.mu.Unlock()
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
	if seconds := int(time.Since(began).Seconds()) + 2; said.count() > 2*seconds+2 { // one address, one line per second
		t.Errorf("%d log messages in %d s, want about one a second:\n%s", said.count(), seconds, strings.Join(said.messages, ""))
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
	first := make(chan joined, 1)
	go func() {
		g, err := Join(context.Background(), options)
		first <- joined{g, err}
	}()
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
		l, err := greet(conn, "")
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

func TestWhoTakesLongestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(3, discardLog())
		enter := func(address string) *visit {
			near, _ := net.Pipe()
			return d.enter(named{near, address})
		}
		steps := []struct {
			come   string
			greets bool
			waits  time.Duration
			inside string
		}{
			{"a:1", false, 0, "[a:1]"},
			{"b:1", false, 0, "[a:1 b:1]"},
			{"a:2", true, 0, "[a:1 b:1 a:2]"},
			{"b:2", false, strangerStay, "[b:1 a:2 b:2]"}, // a:1 is the oldest connection without a greeting
			{"b:3", false, 0, "[a:2 b:2 b:3]"},            // the time of b:1 is over, and b has most strangers
			{"c:1", true, strangerStay, "[a:2 b:3 c:1]"},
			{"c:2", true, 0, "[a:2 c:1 c:2]"},
			{"d:1", false, greeterStay, "[a:2 c:2 d:1]"}, // all connections have sent a greeting, and most are from c
		}
		for _, step := range steps {
			began := time.Now()
			v := enter(step.come)
			if took := time.Since(began); took > step.waits || step.waits > 0 && took == 0 {
				t.Errorf("%s: waited %v, want %v at most, but not 0", step.come, took, step.waits)
			}
			if step.greets {
				d.greeted(v)
			}
			var inside []string
			for _, v := range d.visits {
				inside = append(inside, v.conn.RemoteAddr().String())
			}
			if fmt.Sprint(inside) != step.inside {
				t.Errorf("%s: inside are %v, want %s", step.come, inside, step.inside)
			}
		}
		time.AfterFunc(time.Millisecond, func() { d.leave(d.visits[0]) })
		began := time.Now()
		enter("e:1")
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("waited %v, want no longer than until a connection ended", took)
		}
	})
}

// named is a connection from a given address.
type named struct {
	net.Conn
	from string
}

func (n named) RemoteAddr() net.Addr { return address(n.from) }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
