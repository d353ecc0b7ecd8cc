package rendezvous

import (
	"net"
	"sync"
	"time"
)

const (
	maxOutbox   = 64 << 20        // maximum size of the queue for a peer that does not read, bytes
	closingTime = time.Second     // maximum time to send queued frames, and for the other side to close
	writeTime   = 5 * time.Second // maximum time to write one frame
)

type message struct {
	kind    kind
	payload []byte
}

// outbox queues frames for a link, so that the server never waits for a slow peer.
type outbox struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	waiting []message
	bytes   int
	closed  bool
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// push queues a frame and reports whether there was room. After close it drops the frame.
func (o *outbox) push(k kind, payload []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if o.bytes+len(payload) > maxOutbox {
		return false
	}
	o.waiting = append(o.waiting, message{k, payload})
	o.bytes += len(payload)
	o.signal()
	return true
}

// close tells run to send the queued frames and then to end.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run sends frames until the outbox is closed and empty, or the link breaks. It then closes the connection, which ends
// the link's reader.
func (o *outbox) run(l *link) {
	for {
		o.mu.Lock()
		batch, closed := o.waiting, o.closed
		o.waiting, o.bytes = nil, 0
		o.mu.Unlock()
		for _, m := range batch {
			limit := writeTime
			if closed {
				limit = closingTime
			}
			_ = l.conn.SetWriteDeadline(time.Now().Add(limit)) // fails only on a closed connection, which write reports
			if err := l.write(m.kind, m.payload); err != nil {
				_ = l.conn.Close()
				return
			}
		}
		if closed && len(batch) == 0 {
			hangUp(l.conn)
			return
		}
		if !closed {
			<-o.wake
		}
	}
}

// hangUp closes a connection so that the other side still receives all sent bytes. A plain Close would reset the
// connection if it has unread bytes.
func hangUp(conn net.Conn) {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(closingTime))
}
