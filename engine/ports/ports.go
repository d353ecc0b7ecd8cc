// Package ports opens a listener on a free TCP port in a range of ports.
//
//	listener, err := ports.Range{First: 29600, Last: 29663}.Listen(ctx, net.ListenConfig{}, "10.0.0.1")
//
// With the zero Range, the operating system chooses the port.
package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// Range is a range of ports, from First to Last.
type Range struct{ First, Last int }

// FullError reports that no port of a range is free.
type FullError struct {
	Range Range
	Host  string
	Err   error // error of the last port
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no port of %v is free at %s: %v; use a longer range, with at least one port for each rank of the machine",
		e.Range, e.Host, e.Err)
}

// Unwrap returns the error of the last port.
func (e *FullError) Unwrap() error { return e.Err }

// Len returns the number of ports; 0 for the zero Range.
func (r Range) Len() int {
	if r == (Range{}) {
		return 0
	}
	return r.Last - r.First + 1
}

// String returns the range as in the configuration: "29600-29663".
func (r Range) String() string {
	switch r.Len() {
	case 0:
		return ""
	case 1:
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Listen listens on the first free port of the range at host.
func (r Range) Listen(ctx context.Context, listens net.ListenConfig, host string) (net.Listener, error) {
	if r.Len() == 0 {
		return listens.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	var last error
	for port := r.First; port <= r.Last; port++ {
		listener, err := listens.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return listener, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		last = err
	}
	return nil, &FullError{Range: r, Host: host, Err: last}
}
