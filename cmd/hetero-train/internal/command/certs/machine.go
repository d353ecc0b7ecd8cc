package certs

import (
	"net"
	"regexp"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// machine is a machine for which a certificate is created.
type machine struct {
	name      string   // name of its files
	names     []string // host names
	addresses []net.IP
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

// parseMachine parses an argument such as "node-a,10.0.0.1".
func parseMachine(text string) (m machine, err error) {
	for _, one := range strings.Split(text, ",") {
		ip := net.ParseIP(one)
		switch {
		case ip != nil:
			m.addresses = append(m.addresses, ip)
		case len(one) <= 253 && hostName.MatchString(one):
			m.names = append(m.names, one)
		default:
			return m, exit.Usagef("certs: %q is neither a host name nor an address", one)
		}
	}
	m.name, _, _ = strings.Cut(text, ",")
	// "localhost" is for connections within the machine.
	m.names = append(m.names, "localhost")
	m.addresses = append(m.addresses, net.IPv4(127, 0, 0, 1), net.IPv6loopback)
	return m, nil
}
