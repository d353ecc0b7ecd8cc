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
	// leastBlock is the time of a first block. If the address is above the pace again within the same time after the
	// block, the next block takes twice as long, up to mostBlock. Each block begins with connections that came to the
	// queue of the listener while the thread of the gate waited for a CPU. Shorter blocks cost more CPU time for them,
	// and longer ones keep other clients at this address out for longer.
	leastBlock = 10 * time.Second
	mostBlock  = 80 * time.Second
	// mostBlocked is the number of addresses that a gate blocks. The kernel compares each of them with the address of a
	// packet. The previous list and the next one must fit into net.core.optmem_max, 20 KiB by default in older kernels.
	mostBlocked = 128
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
	closed  time.Time         // of ofClosed
	refused map[string]int    // by address: connections closed since the time second
	second  time.Time         // start of the second of refused
	blocks  map[string]*block // by address
	unable  bool              // the kernel cannot block addresses
	first   time.Duration     // of a test: replaces leastBlock
}

// block is the newest block of an address.
type block struct {
	length time.Duration
	over   bool      // the address may connect again
	end    time.Time // of the block; if it is over, of the time in which a longer one may follow
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
			_ = tcp.SetLinger(0) // the kernel of this machine keeps nothing of the connection
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
	case g.unable || b != nil && !b.over: // the queue has connections from before the block
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

// unblock ends the blocks whose time is over.
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

// apply lets the kernel drop the packets of the blocked addresses, and sets the time of the next call of unblock.
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
	if !ok { // the pauses limit the cost
		g.unable, g.blocks = true, nil
	}
}
