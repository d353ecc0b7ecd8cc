//go:build cgo && linux

package native

import (
	"fmt"
	"sync/atomic"
)

// holds counts the users of an object: programs that are bound to it, and calls in progress. An object can be closed
// only while it has no users, and a closed object accepts no further users.
type holds struct{ n atomic.Int64 } // number of users; -1: closed

// acquire adds a user. It returns false if the object is closed.
func (h *holds) acquire() bool {
	for {
		n := h.n.Load()
		if n < 0 {
			return false
		}
		if h.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// acquireAlone is like acquire, but for an object that allows only one user at a time.
func (h *holds) acquireAlone(what string) error {
	if h.n.CompareAndSwap(0, 1) {
		return nil
	}
	if h.n.Load() < 0 {
		return fmt.Errorf("%s is closed", what)
	}
	return fmt.Errorf("%s is in use by another goroutine", what)
}

func (h *holds) release() { h.n.Add(-1) }

func (h *holds) closed() bool { return h.n.Load() < 0 }

// close closes the object, or returns an error if it is closed or in use.
func (h *holds) close(what, users string) error {
	if h.n.CompareAndSwap(0, -1) {
		return nil
	}
	if n := h.n.Load(); n > 0 {
		return fmt.Errorf("%s: still held by %d %s", what, n, users)
	}
	return fmt.Errorf("%s: closed twice", what)
}
