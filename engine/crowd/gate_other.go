//go:build !linux

package crowd

import (
	"errors"
	"net"
)

// dropPackets returns an error, because these systems have no common way to drop packets without privileges.
func dropPackets(*net.TCPListener, []string) error { return errors.ErrUnsupported }
