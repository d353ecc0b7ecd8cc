//go:build cgo && linux

package gloo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// relayBytes is the size of the buffer of each direction of a relay. Larger: fewer system calls, more of the caches
	// of the CPU. Smaller: more system calls; TLS sends at most 16 KiB in a record.
	relayBytes = 256 << 10
	// drainTime is how long a relay still receives after Gloo has closed its end, so that the other rank gets
	// everything that was sent.
	drainTime = 2 * time.Second
)

// relays connect Gloo, which sends plain bytes, to encrypted connections. Gloo gets one end of a pair of sockets within
// this process; a relay passes bytes between the other end and the connection.
type relays struct {
	running sync.WaitGroup

	mu    sync.Mutex
	fault error // the first error of a connection
}

// plain returns the socket for Gloo: conn itself, or for an encrypted connection an end of a pair of sockets. The
// caller closes the result.
func (r *relays) plain(conn net.Conn) (*net.TCPConn, error) {
	secure, encrypted := conn.(*tls.Conn)
	if !encrypted {
		return conn.(*net.TCPConn), nil
	}
	near, far, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("open a connection within the process: %w", err)
	}
	r.running.Go(func() { r.send(secure, far) })
	r.running.Go(func() { r.receive(far, secure) })
	return near, nil
}

// send encrypts what Gloo sends, until Gloo closes its end.
func (r *relays) send(secure *tls.Conn, from *net.TCPConn) {
	_, err := io.CopyBuffer(onlyWriter{secure}, onlyReader{from}, make([]byte, relayBytes))
	r.note(err)
	if err == nil {
		err = secure.CloseWrite()
	}
	if err != nil {
		secure.NetConn().Close()
		return
	}
	_ = secure.SetReadDeadline(time.Now().Add(drainTime)) // a closed connection ends its reader
}

// receive decrypts what the other rank sends, until that rank closes the connection.
func (r *relays) receive(to *net.TCPConn, secure *tls.Conn) {
	defer secure.NetConn().Close()
	defer to.Close() // ends send
	_, err := io.CopyBuffer(onlyWriter{to}, onlyReader{secure}, make([]byte, relayBytes))
	var invalid tls.RecordHeaderError
	if text := fmt.Sprint(err); errors.As(err, &invalid) || text == "local error: tls: bad record MAC" {
		err = fmt.Errorf("bytes changed between the machines: %w", err)
	}
	r.note(err)
}

// note stores the first error.
func (r *relays) note(err error) {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.fault = err
	}
}

// err returns the first error of an encrypted connection.
func (r *relays) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// wait returns when all relays have ended. Gloo must have closed its sockets.
func (r *relays) wait() { r.running.Wait() }

// onlyReader and onlyWriter hide other methods, because io.CopyBuffer would use them without the buffer.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

// socketPair returns two connected sockets of this process. Gloo needs sockets of TCP.
func socketPair() (near, far *net.TCPConn, err error) {
	listens := net.ListenConfig{KeepAlive: -1}
	listener, err := listens.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	if near, err = net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr)); err != nil {
		return nil, nil, err
	}
	for {
		conn, err := listener.(*net.TCPListener).AcceptTCP()
		if err != nil {
			near.Close()
			return nil, nil, err
		}
		if conn.RemoteAddr().String() == near.LocalAddr().String() {
			return near, conn, nil
		}
		conn.Close() // of another program
	}
}
