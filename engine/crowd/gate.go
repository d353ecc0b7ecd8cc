package crowd

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// Limits of a Gate, which closes connections above its pace. Closing a connection costs about 0.1 ms of CPU time.
const (
	// mostRefused is the number of connections of an address that the gate closes within a second before it blocks the
	// address. The kernel then drops the packets of this address to the listener, which costs the process nothing.
	mostRefused = 16
	// leastBlock is the duration of the first block of an address. If the address exceeds the pace again within the
	// same time after a block, the next block takes twice as long, up to mostBlock. At the start of each block, the
	// gate must close the connections that the queue of the listener already contains. Shorter blocks therefore cost
	// more CPU time, and longer blocks keep out other clients at this address for longer.
	leastBlock = 10 * time.Second
	mostBlock  = 80 * time.Second
	// mostBlocked is the maximum number of addresses that a gate blocks. The kernel compares the address of a packet
	// with each of them. The old list and the new list together must fit into net.core.optmem_max, which is 20 KiB by
	// default in older kernels.
	mostBlocked = 128
	// rest is the shortest pause of a gate that has closed more connections than ofClosed permits. Shorter pauses would
	// cost CPU time, because each of them wakes up the thread. During a pause, clients wait in the queue of the
	// listener.
	rest = 50 * time.Millisecond
)

// ofClosed is the rate at which a gate closes connections without a pause. The rate costs 1 % of a CPU. The burst is a
// listener queue of the usual length (net.core.somaxconn).
var ofClosed = rate{burst: 4096, every: 10 * time.Millisecond}

// Gate accepts the connections of a listener at the rate of a Pace, and closes the others. On Linux, if Listener comes
// from [Listen], the gate also blocks addresses with many more connections. It then uses the deadline of the listener.
// Only one goroutine may use a Gate.
type Gate struct {
	Listener net.Listener
	Limited  func() bool // reports whether the pace applies now; nil: always

	pace    Pace
	closed  time.Time         // time at which the next closed connection is due (ofClosed)
	refused map[string]int    // numbers of connections closed since second, by address
	second  time.Time         // start of the second that refused covers
	blocks  map[string]*block // blocks, by address of the client
	unable  bool              // the kernel cannot block addresses
	first   time.Duration     // replaces leastBlock in a test
}

// block is the newest block of an address.
type block struct {
	length time.Duration
	over   bool      // the address may connect again
	end    time.Time // end of the block; if over: end of the time in which a longer block may follow
}

// Listen opens a port for a Gate. It does not use Multipath TCP, the default of Go, because Linux cannot drop packets
// for such listeners.
func Listen(address string) (net.Listener, error) {
	var listens net.ListenConfig
	listens.SetMultipathTCP(false)
	return listens.Listen(context.Background(), "tcp", address)
}

// Accept returns the next connection, and the time for which it must wait before the server serves it: at most a
// second. The server must accept further connections during this time, so that connections of one address do not delay
// those of others.
func (g *Gate) Accept() (net.Conn, time.Duration, error) {
	for {
		conn, err := g.Listener.Accept()
		now := time.Now()
		if errors.Is(err, os.ErrDeadlineExceeded) && len(g.blocks) > 0 {
			g.unblock(now)
			continue
		}
		if err != nil || g.Limited != nil && !g.Limited() {
			return conn, 0, err
		}
		from := Address(conn.RemoteAddr().String())
		wait, ok := g.pace.Admit(from, now)
		if ok {
			return conn, wait, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // so that the kernel keeps no state of the connection
		}
		_ = conn.Close() // the client sees a closed connection
		g.count(from, now)
		if g.closed = ofClosed.after(g.closed, now); g.closed.Sub(now) > rest {
			time.Sleep(g.closed.Sub(now))
		}
	}
}

// count counts a connection that the gate has closed, and blocks an address with many of them.
func (g *Gate) count(from string, now time.Time) {
	b := g.blocks[from]
	switch {
	case g.unable || b != nil && !b.over: // blocked: the connection was already in the queue
		return
	case b != nil:
		b.length = min(2*b.length, mostBlock)
	default:
		if g.refused == nil || now.Sub(g.second) >= time.Second || len(g.refused) >= mostPaced {
			g.refused, g.second = map[string]int{}, now
		}
		if g.refused[from]++; g.refused[from] < mostRefused || len(g.blocks) >= mostBlocked {
			return
		}
		if g.blocks == nil {
			g.blocks = map[string]*block{}
		}
		b = &block{length: cmp.Or(g.first, leastBlock)}
		g.blocks[from] = b
	}
	b.over, b.end = false, now.Add(b.length)
	g.apply()
}

// unblock ends the blocks whose time has passed.
func (g *Gate) unblock(now time.Time) {
	for from, b := range g.blocks {
		switch {
		case b.end.After(now):
		case b.over:
			delete(g.blocks, from)
		default:
			b.over, b.end = true, now.Add(b.length)
			g.pace.Spend(from, now)
		}
	}
	g.apply()
}

// apply makes the kernel drop the packets of the blocked addresses. It also sets the deadline at which Accept calls
// unblock.
func (g *Gate) apply() {
	l, ok := g.Listener.(*net.TCPListener)
	if ok {
		var earliest time.Time
		var blocked []string
		for from, b := range g.blocks {
			if earliest.IsZero() || b.end.Before(earliest) {
				earliest = b.end
			}
			if !b.over {
				blocked = append(blocked, from)
			}
		}
		ok = dropPackets(l, blocked) == nil && l.SetDeadline(earliest) == nil
	}
	if !ok { // without blocks, only the pauses limit the cost
		g.unable, g.blocks = true, nil
	}
}
