package crowd

import (
	"fmt"
	"net"
	"testing"
)

// named is a connection from a given address.
type named struct {
	net.Conn
	from   string
	closed bool
}

func (n *named) RemoteAddr() net.Addr { return address(n.from) }
func (n *named) Close() error         { n.closed = true; return nil }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

func (c *Crowd) names() (all []string) {
	for _, g := range c.strangers {
		all = append(all, g.conn.(*named).from)
	}
	return all
}

func TestTheAddressWithMostConnectionsMakesRoom(t *testing.T) {
	c := New(3)
	for _, step := range []struct {
		come   string
		proves bool
		inside string // connections that have not proved themselves
	}{
		{"a:1", false, "[a:1]"},
		{"a:2", false, "[a:1 a:2]"},
		{"b:1", false, "[a:1 a:2 b:1]"},
		{"c:1", false, "[a:2 b:1 c:1]"}, // address a has the most connections, so its oldest one is closed
		{"d:1", false, "[b:1 c:1 d:1]"}, // each address has one connection, so the oldest one, a:2, is closed
		{"d:2", false, "[b:1 c:1 d:2]"},
		{"b:2", true, "[c:1 d:2]"}, // b:1 is closed for b:2, which then proves itself
		{"b:3", true, "[d:2]"},     // all connections of b have proved themselves, so c:1 is closed
		{"b:4", true, "[]"},
	} {
		g := c.Enter(&named{from: step.come})
		if g == nil {
			t.Fatalf("%s found no room", step.come)
		}
		if step.proves {
			g.Prove()
		}
		if got := fmt.Sprint(c.names()); got != step.inside {
			t.Errorf("%s: strangers are %s, want %s", step.come, got, step.inside)
		}
	}
	late := &named{from: "b:5"}
	if g := c.Enter(late); g != nil || !late.closed || c.Len() != 3 {
		t.Errorf("got %v and %d connections, want no room and 3, because no connection may be closed", g, c.Len())
	}
}

func TestManyHeldConnectionsDoNotKeepOthersOut(t *testing.T) {
	c := New(256)
	for i := range 10_000 {
		if c.Enter(&named{from: fmt.Sprintf("10.0.0.1:%d", i)}) == nil {
			t.Fatal("a connection found no room")
		}
	}
	client := &named{from: "10.0.0.2:1"}
	g := c.Enter(client)
	for i := range 10_000 {
		c.Enter(&named{from: fmt.Sprintf("10.0.0.1:%d", i)})
	}
	if client.closed || g.Leave() || c.Len() != 255 {
		t.Errorf("the only connection of another address was closed: %v; %d connections, want 255", client.closed,
			c.Len())
	}
}

func TestLeaveAndClose(t *testing.T) {
	c := New(1)
	first, second, third := &named{from: "a:1"}, &named{from: "a:2"}, &named{from: "a:3"}
	g := c.Enter(first)
	h := c.Enter(second)
	if !first.closed || !g.Leave() || !g.Leave() {
		t.Error("the first connection does not know that it was closed")
	}
	g.Prove() // has no effect, because the connection is already closed
	if h.Leave() || h.Leave() || c.Len() != 0 || second.closed {
		t.Errorf("%d connections after both left, want 0", c.Len())
	}
	c.Enter(third)
	c.Close()
	if last := (&named{from: "a:4"}); !third.closed || c.Enter(last) != nil || !last.closed {
		t.Error("a connection is open after Close")
	}
	var none *Guest
	none.Prove()
	if none.Leave() {
		t.Error("no connection was closed")
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[::ffff:10.0.0.1]:80": "10.0.0.1", "[::1]:80": "::1",
		"[fe80::1%eth0]:80":         "fe80::1%eth0",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "pipe": "pipe",
	} {
		if got := Address(text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
