// Package crowd limits the open connections of a server, so that unauthenticated connections cannot block its clients.
//
//	c := crowd.New(256)
//	for {
//		conn, err := listener.Accept()
//		…
//		guest := c.Enter(conn)
//		if guest == nil { continue } // Enter has closed conn
//		go func() {
//			defer guest.Leave()
//			… the client proves that it knows the secret of the server …
//			guest.Prove()
//			…
//		}()
//	}
//
// Enter never waits. If all places are taken, Enter closes the oldest connection of the address with the most
// connections. It never closes a connection whose client has proved that it knows the secret. If all places belong to
// such clients, Enter closes the new connection. Therefore, a client that proves the secret immediately gets a place,
// even if other programs hold or open many connections. The exception is a flood from as many addresses as there are
// places, which can push the client out before its proof.
//
// IPv6 addresses of one network of 64 bits count as one address, because a single machine can use all of them.
package crowd

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Crowd contains the open connections of a server. It is safe for concurrent use.
type Crowd struct {
	most int

	mu        sync.Mutex
	closed    bool
	strangers []*Guest       // connections that have proved nothing, oldest first
	counts    map[string]int // numbers of strangers, by address
	proved    map[*Guest]struct{}
}

// Guest is one connection. Its methods are safe for concurrent use; those of a nil Guest do nothing.
type Guest struct {
	crowd  *Crowd
	conn   net.Conn
	from   string
	state  state
	pushed bool // the Crowd closed the connection to make room for another one
}

type state int

const (
	stranger state = iota
	known          // the client has proved that it may use the server
	gone
)

// New returns a Crowd of at most limit connections.
func New(limit int) *Crowd {
	return &Crowd{most: max(limit, 1), counts: map[string]int{}, proved: map[*Guest]struct{}{}}
}

// Enter adds a connection. It closes the connection and returns nil if the Crowd is closed, or if clients that have
// proved the secret hold all places.
func (c *Crowd) Enter(conn net.Conn) *Guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.proved) >= c.most {
		_ = conn.Close() // the client sees a closed connection
		return nil
	}
	g := &Guest{crowd: c, conn: conn, from: Address(conn.RemoteAddr().String())}
	c.strangers = append(c.strangers, g)
	c.counts[g.from]++
	if len(c.proved)+len(c.strangers) > c.most {
		out := c.longest()
		c.remove(out)
		out.pushed = true
		_ = out.conn.Close()
	}
	return g
}

// longest returns the connection to close: the oldest stranger of the address with the most strangers. The caller must
// hold c.mu, and there must be strangers.
func (c *Crowd) longest() *Guest {
	most := 0
	for _, n := range c.counts {
		most = max(most, n)
	}
	return c.strangers[slices.IndexFunc(c.strangers, func(g *Guest) bool { return c.counts[g.from] == most })]
}

// remove removes a connection. The caller must hold c.mu.
func (c *Crowd) remove(g *Guest) {
	if g.state == known {
		delete(c.proved, g)
	} else if i := slices.Index(c.strangers, g); i >= 0 {
		c.strangers = slices.Delete(c.strangers, i, i+1)
		if c.counts[g.from]--; c.counts[g.from] == 0 {
			delete(c.counts, g.from)
		}
	}
	g.state = gone
}

// Prove records that the client may use the server. From then on, the connection cannot lose its place.
func (g *Guest) Prove() {
	if g == nil {
		return
	}
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if g.state == stranger {
		g.crowd.remove(g)
		g.state = known
		g.crowd.proved[g] = struct{}{}
	}
}

// Leave gives up the place, but does not close the connection. It reports whether the Crowd closed the connection to
// make room. Further calls only report this again.
func (g *Guest) Leave() (pushed bool) {
	if g == nil {
		return false
	}
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if g.state != gone {
		g.crowd.remove(g)
	}
	return g.pushed
}

// Len returns the number of connections.
func (c *Crowd) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.proved) + len(c.strangers)
}

// Close closes all connections that have not left, and all later ones.
func (c *Crowd) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, g := range c.strangers {
		_ = g.conn.Close()
	}
	for g := range c.proved {
		_ = g.conn.Close()
	}
}

// Address returns the address of a client without the port, or its network of 64 bits if the client uses IPv6. The
// parameter text is the remote address of a connection.
func Address(text string) string {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	return network(ip)
}

// network returns the network of an IPv6 client, and the address of other clients. Loopback and link-local addresses
// have no network.
func network(ip netip.Addr) string {
	if ip = ip.Unmap(); ip.Is4() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return ip.String()
	}
	prefix, _ := ip.WithZone("").Prefix(64) // fails only for IPv4
	return prefix.String()
}
