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
	"sync/atomic"
	"time"
)

const (
	// relayBytes is the buffer size for each direction of a relay. A larger value needs fewer system calls, but
	// occupies more of the CPU's caches. A smaller value needs more system calls. TLS sends at most 16 KiB in a record.
	relayBytes = 256 << 10
	// drainTime limits how long a relay waits for the other rank after Gloo has closed its end. For this time, the
	// relay still receives, so that the other rank can send all its data. The relay still sends as long as the other
	// rank accepts some data within each drainTime.
	drainTime = 2 * time.Second
)

// relays connect Gloo, which sends unencrypted bytes, with encrypted connections. Gloo gets one end of a socket pair
// within this process. A relay transfers bytes between the other end and the connection.
type relays struct {
	running sync.WaitGroup

	mu     sync.Mutex
	all    []*relay
	faults map[int]error // the first error of the connection to a rank
}

// relay is the connection to one rank.
type relay struct {
	secure *tls.Conn
	plain  *net.TCPConn // the other end of Gloo's socket
	sent   atomic.Int64 // number of sent bytes
	ended  chan struct{}
}

// plain returns the socket for Gloo: conn itself, or one end of a socket pair if the connection is encrypted. The
// caller must close the result.
func (r *relays) plain(rank int, conn net.Conn) (*net.TCPConn, error) {
	secure, encrypted := conn.(*tls.Conn)
	if !encrypted {
		return conn.(*net.TCPConn), nil
	}
	near, far, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("open a connection within the process: %w", err)
	}
	one := &relay{secure: secure, plain: far, ended: make(chan struct{})}
	r.mu.Lock()
	r.all = append(r.all, one)
	r.mu.Unlock()
	r.running.Go(func() { r.note(rank, one.send()) })
	r.running.Go(func() { one.receive(func(err error) { r.note(rank, err) }) })
	return near, nil
}

// send encrypts Gloo's data until Gloo closes its end.
func (o *relay) send() error {
	_, err := io.CopyBuffer(o, onlyReader{o.plain}, make([]byte, relayBytes))
	if err == nil {
		err = o.secure.CloseWrite()
	}
	if err != nil {
		o.secure.NetConn().Close()
		return err
	}
	_ = o.secure.SetReadDeadline(time.Now().Add(drainTime)) // limits the time for which receive waits for the rest
	return nil
}

// Write implements io.Writer for send.
func (o *relay) Write(p []byte) (n int, err error) {
	const record = 16 << 10
	for len(p) > 0 && err == nil {
		var sent int
		sent, err = o.secure.Write(p[:min(record, len(p))])
		n, p = n+sent, p[sent:]
		o.sent.Add(int64(sent))
	}
	return n, err
}

// receive decrypts the data of the other rank until that rank closes the connection. It passes its error to the
// function note before Gloo can detect the end of the connection.
func (o *relay) receive(note func(error)) {
	defer close(o.ended)
	defer o.secure.NetConn().Close()
	defer o.plain.Close() // ends send
	_, err := io.CopyBuffer(onlyWriter{o.plain}, onlyReader{o.secure}, make([]byte, relayBytes))
	var invalid tls.RecordHeaderError
	if text := fmt.Sprint(err); errors.As(err, &invalid) || text == "local error: tls: bad record MAC" {
		err = fmt.Errorf("bytes changed between the machines: %w", err)
	}
	note(err)
}

// expire closes the connection if the other rank has accepted no data for drainTime. Otherwise, a stopped rank or a
// broken network would block send and receive forever.
func (o *relay) expire() {
	for {
		before := o.sent.Load()
		select {
		case <-o.ended:
			return
		case <-time.After(drainTime):
		}
		if o.sent.Load() == before {
			o.secure.NetConn().Close()
			return
		}
	}
}

// note stores the first error of the connection to a rank.
func (r *relays) note(rank int, err error) {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults == nil {
		r.faults = map[int]error{}
	}
	if r.faults[rank] == nil {
		r.faults[rank] = err
	}
}

// err returns the first error of the encrypted connection to a rank.
func (r *relays) err(rank int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults[rank]
}

// expire limits the time for which the relays wait for other ranks. Gloo must already have closed its sockets.
func (r *relays) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		r.running.Go(one.expire)
	}
}

// wait returns when all relays have ended. Gloo must already have closed its sockets.
func (r *relays) wait() {
	r.expire()
	r.running.Wait()
}

// onlyReader and onlyWriter hide all other methods of a connection, because io.CopyBuffer would call those and ignore
// the buffer.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

// socketPair returns two connected sockets of this process. They are TCP sockets, because Gloo requires TCP.
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
		conn.Close() // connection of another program
	}
}
