package crowd

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// visit opens a connection from an address of loopback. It waits until the server has served or closed the connection.
func visit(from, to string, most time.Duration) error {
	ip := net.ParseIP(from)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}, Timeout: most}
	conn, err := dialer.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// A flood from one address must not keep out a client at another address, and must not leave the gate closed
// afterwards.
func TestAFloodAtAGate(t *testing.T) {
	for _, network := range []struct{ listen, flood, other string }{
		{"127.0.0.1:0", "127.0.0.1", "127.0.0.2"}, {"[::]:0", "127.0.0.1", "::1"}, {"[::]:0", "::1", "127.0.0.1"},
	} {
		t.Run(network.flood+" at "+network.listen, func(t *testing.T) {
			t.Parallel()
			l, err := Listen(network.listen)
			if err != nil {
				t.Skip("this system lacks an address: ", err)
			}
			defer l.Close()
			floodAt(t, l, network.flood, network.other)
		})
	}
}

func floodAt(t *testing.T, l net.Listener, flood, other string) {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	at := func(from string) string { // dual-stack listeners have an IPv4 address and an IPv6 address
		if flood == "127.0.0.1" && other == "127.0.0.2" {
			return l.Addr().String()
		}
		return net.JoinHostPort(from, port)
	}
	const blocked = time.Second
	g := Gate{Listener: l, first: blocked}
	var own atomic.Int64
	var length atomic.Int64 // length of the block by the clock of the gate; 0: no block has ended
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		for {
			conn, wait, err := g.Accept()
			if err != nil {
				ended <- err
				return
			}
			if wait > mostWait {
				ended <- errors.New("a wait longer than mostWait")
				return
			}
			if b := g.blocks[flood]; b != nil && b.over {
				length.Store(int64(b.end.Add(-b.length).Sub(began)))
			}
			if Address(conn.RemoteAddr().String()) == flood {
				own.Add(1)
			}
			_, _ = conn.Write([]byte{1})
			conn.Close()
		}
	}()
	// On some systems, loopback has only one address.
	usable := visit(other, at(other), time.Minute) == nil
	// The kernel completes a connection without the gate, so a busy machine does not delay the flood. Only dropped
	// packets delay a connection for that long: the client's kernel sends a lost packet again after a second.
	dialer, dropped := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(flood)}, Timeout: 9 * blocked / 10}, false
	for connections := 0; connections < 4000 && !dropped; connections++ {
		conn, err := dialer.Dial("tcp", at(flood))
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
		late, ok := err.(net.Error)
		dropped = ok && late.Timeout()
	}
	if runtime.GOOS == "linux" && !dropped {
		t.Error("the kernel does not drop packets of the flood")
	}
	if usable {
		if err := visit(other, at(other), time.Minute); err != nil {
			t.Errorf("a client at another address is not served: %v", err)
		}
	}
	took := time.Since(began)
	if most := int64(ofEach.burst) + int64((mostWait+took)/ofEach.every) + 1; own.Load() > most {
		t.Errorf("%d connections of the flood were served in %v, want at most %d", own.Load(), took, most)
	}
	for deadline := time.Now().Add(blocked + time.Minute); ; {
		err := visit(flood, at(flood), time.Second)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the address of a flood that has ended is not served: %v", err)
		}
	}
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end of the listener: got %v, want net.ErrClosed", err)
	}
	if got := time.Duration(length.Load()); got > 0 && got < blocked {
		t.Errorf("a block ended %v after the start, want at least %v", got, blocked)
	}
}

// If the kernel cannot drop packets, the gate limits its cost by pauses. A client waits for at most a pause after each
// of a few closed connections.
func TestAGateWithoutFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &endless{end: time.Now().Add(time.Minute)}
		g := Gate{Listener: l}
		passed := 0
		for {
			if _, _, err := g.Accept(); err != nil {
				break
			}
			passed++
		}
		// the listener opens connections as fast as the gate accepts them
		if want := ofClosed.burst + int(time.Minute/ofClosed.every); l.closed < want-10 || l.closed > want+10 {
			t.Errorf("%d connections closed within a minute, want %d", l.closed, want)
		}
		if want := ofEach.burst + int((time.Minute+mostWait)/ofEach.every); passed < want-10 || passed > want {
			t.Errorf("%d connections served within a minute, want %d", passed, want)
		}
	})
}

// endless is a listener that returns a connection at every call, until the time end.
type endless struct {
	net.Listener
	end    time.Time
	closed int
}

func (e *endless) Accept() (net.Conn, error) {
	if !time.Now().Before(e.end) {
		return nil, net.ErrClosed
	}
	return &refusable{of: e}, nil
}

type refusable struct {
	net.Conn
	of *endless
}

func (r *refusable) RemoteAddr() net.Addr { return address("10.0.0.1:1") }
func (r *refusable) Close() error         { r.of.closed++; return nil }

// Without a limit, a gate accepts all connections.
func TestAGateWithoutLimit(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := Gate{Listener: l, Limited: func() bool { return false }}
	for range 200 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		own, wait, err := g.Accept()
		if err != nil || wait != 0 {
			t.Fatalf("got a wait of %v, %v", wait, err)
		}
		own.Close()
	}
}
