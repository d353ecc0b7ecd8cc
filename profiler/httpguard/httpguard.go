// Package httpguard contains code that the HTTP servers of the profiler share: a limit of open connections, the host of
// a Host header, and a comparison of secrets.
package httpguard

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"strings"
	"sync"
)

// Limit returns a listener that accepts at most most open connections. It closes further connections at once, so their
// clients get an error instead of waiting.
func Limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, open: make(chan struct{}, most)}
}

type limited struct {
	net.Listener
	open chan struct{} // one element for each open connection
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.open <- struct{}{}:
			return &counted{Conn: conn, release: sync.OnceFunc(func() { <-l.open })}, nil
		default:
			conn.Close() // the client sees a closed connection
		}
	}
}

// counted is a connection that calls release when it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}

// Host returns the host of a Host header: without the port, and without the brackets of an IPv6 address.
func Host(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		header = host
	}
	return strings.TrimPrefix(strings.TrimSuffix(header, "]"), "[")
}

// Equal compares two secrets in a time that does not depend on their contents.
func Equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
