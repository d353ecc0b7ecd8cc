package porttest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Connection returns both ends of a connection. They have a deadline, and are closed when the test ends.
func Connection(t testing.TB) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err == nil {
		far, err = listener.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{near, far} {
		c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { c.Close() })
	}
	return near, far
}

// Flood opens and resets connections to an address until the test ends. It returns after the first 500 attempts, far
// more than the pace of package crowd permits.
func Flood(t *testing.T, address string) {
	t.Helper()
	ended := make(chan struct{})
	var strangers sync.WaitGroup
	var tries atomic.Int64
	for range 32 {
		strangers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				tries.Add(1)
				conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
				if err != nil {
					continue // packets were dropped, the queue of the listener is full, or the server has hung up
				}
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		})
	}
	t.Cleanup(func() {
		close(ended)
		strangers.Wait()
	})
	for tries.Load() < 500 {
		time.Sleep(time.Millisecond)
	}
}
