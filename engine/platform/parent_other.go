//go:build !linux

package platform

import "os"

// NotifyParentDeath does nothing on systems other than Linux.
func NotifyParentDeath(chan<- os.Signal) {}
