package crowd

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestNextTriesAgain(t *testing.T) {
	var newest Fault
	faults := []error{syscall.EMFILE, syscall.ECONNABORTED, nil, syscall.ENFILE, net.ErrClosed}
	accept := func() (net.Conn, error) {
		err := faults[0]
		if faults = faults[1:]; err != nil {
			return nil, err
		}
		return &named{}, nil
	}
	if conn, err := Next(accept, &newest); conn == nil || err != nil || newest.Err() != nil || len(faults) != 2 {
		t.Errorf("got %v, %v after fault %v, %d faults left, want a connection after two faults", conn, err,
			newest.Err(), len(faults))
	}
	if _, err := Next(accept, &newest); err != net.ErrClosed || !errors.Is(newest.Err(), syscall.ENFILE) {
		t.Errorf("got %v after fault %v, want the end after a fault", err, newest.Err())
	}
}
