package process

import (
	"context"
	"fmt"
	"net"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// discardPort is a port for addresses to which this package only looks up a route. It sends nothing to the port.
const discardPort = "9"

// Locate finds the address at which other machines reach this machine: the local address of the route to rank 0. On the
// machine of rank 0, the name of rank 0 is often a loopback address (127.0.1.1 in Debian's /etc/hosts). Such a machine
// takes the local address of its route to another machine instead. All ranks must call Locate.
func (t *Team) Locate(ctx context.Context) error {
	own, err := t.routeTo(ctx, t.Place.Master())
	if err != nil {
		return exit.With(exit.Communication, fmt.Errorf("find the address of this machine: %w", err))
	}
	t.address = (&net.IPAddr{IP: own.IP, Zone: own.Zone}).String()
	if len(t.Hosts()) == 1 {
		return nil
	}
	if own.IP.IsLinkLocalUnicast() {
		return exit.Usagef("%s: got %s, a link-local address, which other machines can reach only through an interface of their own: set another address of rank 0",
			t.Place.MasterFrom, t.Place.MasterAddr)
	}
	word := t.address
	if own.IP.IsLoopback() {
		word = ""
	}
	words, err := t.Group.Gather(ctx, "addresses of the machines", []byte(word))
	if err != nil || word != "" {
		return err
	}
	if t.address = t.reachable(ctx, words); t.address != "" {
		return nil
	}
	return exit.Usagef("%s: got %s, which is the machine itself on each of the %d machines (here %v): set an address of rank 0 in their network",
		t.Place.MasterFrom, t.Place.MasterAddr, len(t.Hosts()), own.IP)
}

// reachable looks up the routes to the given addresses. It returns the local address of the first route that leaves
// this machine, or "" if there is none.
func (t *Team) reachable(ctx context.Context, addresses [][]byte) string {
	for _, address := range addresses {
		if len(address) == 0 {
			continue
		}
		if own, err := t.routeTo(ctx, net.JoinHostPort(string(address), discardPort)); err == nil &&
			!own.IP.IsLoopback() {
			return own.IP.String()
		}
	}
	return ""
}

// routeTo returns the local address of the route to an address. It sends no packet.
func (t *Team) routeTo(ctx context.Context, address string) (*net.UDPAddr, error) {
	dialer := net.Dialer{Resolver: t.Resolver}
	conn, err := dialer.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close() // nothing was sent
	return conn.LocalAddr().(*net.UDPAddr), nil
}

// OwnAddress returns the address at which other machines reach this machine.
func (t *Team) OwnAddress() string { return t.address }
