package crowd

import (
	"net"
	"time"
)

// rest is the pause of a Gate between two looks at the queue of the kernel while strangers connect above the pace. All
// connections that have arrived in the meantime cost one wake-up of the thread, which costs more than a connection. A
// client at another address waits this long in addition. The queue has room for 4,096 connections by default
// (net.core.somaxconn).
const rest = 50 * time.Millisecond

// mostAtOnce is the number of connections that a Gate closes between two pauses, so that a flood cannot use a CPU.
const mostAtOnce = 1024

// Gate accepts the connections of a listener at the rate of a Pace, and closes the others. One goroutine may use it.
type Gate struct {
	Listener net.Listener
	Limited  func() bool // whether the pace applies to a connection that has come; nil: always

	pace     Pace
	flooded  bool // the newest look at the queue found connections above the pace
	admitted []admission
}

type admission struct {
	conn net.Conn
	wait time.Duration
}

// Accept returns the next connection, and how long it must wait before it is served: at most a second. The server must
// accept further connections in the meantime, so that those of one address do not keep others waiting.
func (g *Gate) Accept() (net.Conn, time.Duration, error) {
	for {
		if len(g.admitted) > 0 {
			next := g.admitted[0]
			g.admitted = g.admitted[1:]
			return next.conn, next.wait, nil
		}
		if g.flooded {
			time.Sleep(rest)
			// Connections that are closed here cost a third of those that Listener returns.
			g.flooded = g.drain(time.Now())
			continue
		}
		conn, err := g.Listener.Accept()
		if err != nil || g.Limited != nil && !g.Limited() {
			return conn, 0, err
		}
		wait, ok := g.pace.Admit(Address(conn.RemoteAddr().String()), time.Now())
		if ok {
			return conn, wait, nil
		}
		g.flooded = true
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the kernel of this machine keeps nothing of the connection
		}
		_ = conn.Close() // the client sees a closed connection
	}
}
