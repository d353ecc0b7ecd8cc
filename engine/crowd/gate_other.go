//go:build !linux

package crowd

import "time"

// drain does nothing: Listener.Accept returns the next connection.
func (g *Gate) drain(time.Time) (closed bool) { return false }
