// Package porttest provides TCP ports of 127.0.0.1 and connections for tests. To get a free port, a test must not close
// a listener on port 0: the system can immediately assign this port to another test. Only tests import the package.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
)

// Free returns a port on which no program listens, for a program that the test starts. Linux and macOS use higher ports
// for port 0 and for clients, so only another call of Free could return the same port.
func Free(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 16384 + rand.IntN(16384)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("none of 100 ports of 127.0.0.1 from 16384 to 32767 is free")
	return 0
}

// Held returns n successive ports like those of Free. A listener on each port holds the port until the test closes the
// listener or ends.
func Held(t *testing.T, n int) (first int, listeners []net.Listener) {
	t.Helper()
	for range 100 {
		first = Free(t)
		for port := first; port < first+n; port++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				break
			}
			listeners = append(listeners, l)
		}
		if len(listeners) == n {
			t.Cleanup(func() {
				for _, l := range listeners {
					l.Close() // the test may have closed it
				}
			})
			return first, listeners
		}
		for _, l := range listeners {
			l.Close()
		}
		listeners = nil
	}
	t.Fatalf("no %d successive ports of 127.0.0.1 are free", n)
	return 0, nil
}

// Refusing returns an address, HOST:PORT, that refuses connections until the test ends. A socket holds the port and
// does not listen.
func Refusing(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", address.(*syscall.SockaddrInet4).Port)
}
