package crowd

import (
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// retryTime is the pause after an attempt to accept a connection that failed.
const retryTime = 50 * time.Millisecond

// Fault is the error of the newest attempt of Next. It is safe for concurrent use.
type Fault struct{ err atomic.Pointer[error] }

// Err returns nil if the newest attempt succeeded or still waits for the first connection.
func (f *Fault) Err() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Next returns the next connection of a listener with the method accept. If an attempt fails, it waits and tries again,
// because other users of the machine can cause a lack of file descriptors. Its only error is net.ErrClosed.
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
