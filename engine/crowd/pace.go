package crowd

import (
	"maps"
	"net"
	"time"
)

// Limits of a Pace. At a larger rate, strangers take more of the CPU that the process needs for training: a connection
// that is served and refused costs about 0.4 ms. At a smaller rate, a client waits longer while strangers connect from
// its address.
const (
	burst = 32
	every = 20 * time.Millisecond
	// mostWait is the longest wait of a connection. At most 50 connections of an address wait.
	mostWait = time.Second
	// rest is the pause of a server that closes connections. Several connections then arrive for each wake-up of its
	// thread; a wake-up costs more than the connection.
	rest = 10 * time.Millisecond
	// mostPaced is the number of addresses that a Pace remembers. Strangers with more addresses are limited less.
	mostPaced = 1024
)

// Pace limits the rate of connections of each address, for ports that need few of them: 50 connections per second,
// after a burst of 32. Connections of one address never delay those of another one. The zero value is ready. One
// goroutine may use it.
type Pace struct {
	due    map[string]time.Time // by address: time at which the next connection may come if none came before
	rested time.Time            // when the newest pause began
}

// Admit returns how long a connection that came now must wait before it is served. If it would wait for more than a
// second, Admit closes it, and ok is false; wait is then the time until the server should accept the next connection,
// at most 10 ms. Addresses are those of Address.
func (p *Pace) Admit(conn net.Conn, now time.Time) (wait time.Duration, ok bool) {
	from := Address(conn.RemoteAddr().String())
	earliest := now.Add(-burst * every)
	due, known := p.due[from]
	if due.Before(earliest) {
		due = earliest
	}
	due = due.Add(every)
	if wait = max(due.Sub(now), 0); wait > mostWait {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the kernel of this machine keeps nothing of the connection
		}
		_ = conn.Close() // the client sees a closed connection
		if now.Sub(p.rested) < 2*rest {
			return 0, false
		}
		p.rested = now
		return rest, false
	}
	if !known && len(p.due) >= mostPaced {
		maps.DeleteFunc(p.due, func(_ string, due time.Time) bool { return due.Before(earliest) })
		if len(p.due) >= mostPaced {
			clear(p.due) // no client may be kept out by the number of others
		}
	}
	if p.due == nil {
		p.due = map[string]time.Time{}
	}
	p.due[from] = due
	return wait, true
}
