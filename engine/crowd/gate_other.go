//go:build !linux

package crowd

import (
	"errors"
	"net"
)

// dropPackets is not implemented: the systems have no common way to drop packets without a privilege.
func dropPackets(*net.TCPListener, []string) error { return errors.ErrUnsupported }
