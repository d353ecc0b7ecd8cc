package crowd

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A flood of one address must neither keep out a client at another one nor leave the gate closed afterwards.
func TestAFloodAtAGate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := Gate{Listener: l}
	served, ended := make(chan string, 10_000), make(chan error, 1)
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
			served <- Address(conn.RemoteAddr().String())
			_, _ = conn.Write([]byte{1})
			conn.Close()
		}
	}()
	const flood = 500
	for range flood {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			continue // closed before Dial returned
		}
		defer conn.Close()
	}
	// On some systems only one address of loopback exists.
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	if conn, err := other.Dial("tcp", l.Addr().String()); err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("a client at another address is not served: %v", err)
		}
	}
	// The pace admits the address again after a while.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
			conn.Close()
		}
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
	own := 0
	for len(served) > 0 {
		if <-served == "127.0.0.1" {
			own++
		}
	}
	if most := burst + int(mostWait/every) + 100; own > most {
		t.Errorf("%d connections of the flood of %d were served, want at most %d", own, flood, most)
	}
}

// Without a limit, a gate accepts all connections.
func TestAGateWithoutLimit(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
