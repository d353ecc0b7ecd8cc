//go:build !linux

package crowd

import (
	"errors"
	"net"
)

// dropPackets returns an error: these systems have no common way to drop packets without a privilege.
func dropPackets(*net.TCPListener, []string) error { return errors.ErrUnsupported }
