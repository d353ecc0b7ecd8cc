package crowd

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// retryTime is the pause after a failed attempt to accept a connection.
const retryTime = 50 * time.Millisecond

// Fault is the error of the latest attempt of Next. It is safe for concurrent use.
type Fault struct{ err atomic.Pointer[error] }

// Err returns nil if the latest attempt succeeded, or if the first attempt still waits for a connection.
func (f *Fault) Err() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Next returns the next connection of a listener. The parameter accept is the listener's method Accept. If an attempt
// fails, Next waits and tries again, because the lack of a resource, such as file descriptors, may be temporary. Its
// only error is net.ErrClosed.
func Next[C net.Conn](accept func() (C, error), newest *Fault) (C, error) {
	for {
		conn, err := accept()
		if err == nil {
			newest.err.Store(nil)
		}
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		newest.err.Store(&err)
		time.Sleep(retryTime)
	}
}
