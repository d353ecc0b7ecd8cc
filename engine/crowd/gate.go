package crowd

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// A Gate closes connections above its pace. A connection that the gate closes costs about 0.1 ms.
const (
	// mostRefused is the number of connections that the gate closes for an address within a second. Then the address is
	// blocked: the kernel drops its packets to the listener, and they cost the process nothing.
	mostRefused = 16
	// blockTime is the time for which an address is blocked. Before the kernel drops anything, the queue of the
	// listener has the connections of a flood that came while the thread of the gate waited for a CPU. A shorter time
	// costs more CPU time for them, and a longer one keeps other clients at this address out for longer.
	blockTime = 10 * time.Second
	// mostBlocked is the number of addresses that are blocked at once, because the kernel compares each of them with the
	// address of a new connection.
	mostBlocked = 32
	// rest is the pause of a gate that has closed more than ofClosed permits, because each wake-up of the thread costs
	// CPU time, too. Clients wait in the queue of the listener in the meantime.
	rest = 50 * time.Millisecond
)

// ofClosed is the rate of connections that a gate closes without a pause: 1 % of a CPU, after a queue of the usual
// length (net.core.somaxconn).
var ofClosed = rate{burst: 4096, every: 10 * time.Millisecond}

// Gate accepts the connections of a listener at the rate of a Pace, and closes the others. On Linux it blocks addresses
// that send many more, if Listener is one of Listen. The gate then uses the deadline of the listener. One goroutine may
// use a Gate.
type Gate struct {
	Listener net.Listener
	Limited  func() bool // whether the pace applies to a connection that has come; nil: always

	pace    Pace
	closed  time.Time            // of ofClosed
	refused map[string]int       // by address: connections closed since the time second
	second  time.Time            // start of the second of refused
	blocked map[string]time.Time // by address: end of the block
	unable  bool                 // the kernel cannot block addresses
	shorter time.Duration        // of a test: replaces blockTime
}

// Listen opens a port for a Gate. Linux drops no packets for listeners of Multipath TCP, which are the default of Go.
func Listen(address string) (net.Listener, error) {
	var listens net.ListenConfig
	listens.SetMultipathTCP(false)
	return listens.Listen(context.Background(), "tcp", address)
}

// Accept returns the next connection, and how long it must wait before it is served: at most a second. The server must
// accept further connections in the meantime, so that those of one address do not keep others waiting.
func (g *Gate) Accept() (net.Conn, time.Duration, error) {
	for {
		conn, err := g.Listener.Accept()
		now := time.Now()
		if errors.Is(err, os.ErrDeadlineExceeded) && len(g.blocked) > 0 {
			g.unblock(now)
			continue
		}
		if err != nil || g.Limited != nil && !g.Limited() {
			return conn, 0, err
		}
		from := Address(conn.RemoteAddr().String())
		wait, verdict := g.pace.Admit(from, now)
		if verdict == served {
			return conn, wait, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the kernel of this machine keeps nothing of the connection
		}
		_ = conn.Close() // the client sees a closed connection
		if verdict == ownLimit {
			g.count(from, now)
		}
		if g.closed = ofClosed.after(g.closed, now); g.closed.Sub(now) > rest {
			time.Sleep(g.closed.Sub(now))
		}
	}
}

// count counts a connection that the gate has closed because of its address.
func (g *Gate) count(from string, now time.Time) {
	if g.refused == nil || now.Sub(g.second) >= time.Second || len(g.refused) >= mostPaced {
		g.refused, g.second = map[string]int{}, now
	}
	if g.refused[from]++; g.refused[from] < mostRefused || g.unable || len(g.blocked) >= mostBlocked {
		return
	}
	if g.blocked == nil {
		g.blocked = map[string]time.Time{}
	}
	if _, is := g.blocked[from]; !is { // the queue has connections from before the block
		g.blocked[from] = now.Add(cmp.Or(g.shorter, blockTime))
		g.apply()
	}
}

// unblock ends the blocks whose time is over.
func (g *Gate) unblock(now time.Time) {
	for from, end := range g.blocked {
		if !end.After(now) {
			delete(g.blocked, from)
			g.pace.Spend(from, now)
		}
	}
	g.apply()
}

// apply lets the kernel drop the packets of the blocked addresses, and sets the time at which Accept ends a block.
func (g *Gate) apply() {
	l, ok := g.Listener.(*net.TCPListener)
	var earliest time.Time
	if ok {
		for _, end := range g.blocked {
			if earliest.IsZero() || end.Before(earliest) {
				earliest = end
			}
		}
		ok = dropPackets(l, g.blocked) == nil && l.SetDeadline(earliest) == nil
	}
	if !ok { // the pauses limit the cost
		g.unable, g.blocked = true, nil
	}
}
