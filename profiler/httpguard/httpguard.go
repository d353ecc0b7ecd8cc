// Package httpguard contains code that the HTTP servers of the profiler share: a limit of open connections, the host of
// a Host header, a comparison of secrets, and a limit of wrong secrets.
package httpguard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/crowd"
)

// Serve serves s on l until s is closed. With a TLS configuration, it accepts only HTTPS. All connections use HTTP/1.1.
// With HTTP/2, one connection could have many requests at a time, so the limits of this package and of s would not be
// effective.
func Serve(s *http.Server, l net.Listener, secure *tls.Config) error {
	if secure == nil {
		return s.Serve(l)
	}
	s.TLSConfig, s.Protocols = secure, new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	return s.ServeTLS(l, "", "")
}

// Limit returns listener l wrapped, so that s has at most limit open connections on it. If all places are taken, a new
// connection replaces one whose client has not been approved by Prove; package crowd chooses it. If all clients are
// approved, the new connection is closed immediately, so that its client gets an error instead of waiting.
func Limit(s *http.Server, l net.Listener, limit int) net.Listener {
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		return context.WithValue(ctx, guestKey{}, conn.(*counted).guest)
	}
	return &limited{Listener: l, crowd: crowd.New(limit)}
}

type guestKey struct{}

// Prove records that the client of a request may use the server. Its connection then keeps its place; see Limit.
func Prove(r *http.Request) {
	guest, _ := r.Context().Value(guestKey{}).(*crowd.Guest) // nil in tests without connections
	guest.Prove()
}

type limited struct {
	net.Listener
	crowd *crowd.Crowd
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if guest := l.crowd.Enter(conn); guest != nil {
			return &counted{conn, guest}, nil
		}
	}
}

// Paced limits the rate of connections from each address to that of a crowd.Pace, by delaying or closing connections.
// It is for a server in the process of a rank. It accepts each connection immediately, so that the connections of one
// address do not delay those of others.
func Paced(l net.Listener) net.Listener { return &paced{l, crowd.Gate{Listener: l}} }

type paced struct {
	net.Listener
	gate crowd.Gate
}

// Accept implements net.Listener.
func (p *paced) Accept() (net.Conn, error) {
	conn, wait, err := p.gate.Accept()
	if err != nil {
		return nil, err
	}
	return &delayed{Conn: conn, wait: wait}, nil
}

// delayed is a connection whose first read is delayed. Only one goroutine at a time may read from it.
type delayed struct {
	net.Conn
	wait time.Duration
}

// Read implements net.Conn.
func (d *delayed) Read(p []byte) (int, error) {
	if d.wait > 0 {
		time.Sleep(d.wait) // at most a second; it also waits if the connection is closed meanwhile
		d.wait = 0
	}
	return d.Conn.Read(p)
}

// counted is a connection that leaves the crowd when it is closed.
type counted struct {
	net.Conn
	guest *crowd.Guest
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.guest.Leave()
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
