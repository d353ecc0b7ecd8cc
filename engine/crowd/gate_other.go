//go:build !linux

package crowd

import (
	"errors"
	"net"
	"time"
)

// dropPackets is not implemented: the systems have no common way to drop packets without a privilege.
func dropPackets(*net.TCPListener, map[string]time.Time) error { return errors.ErrUnsupported }
