package dashboard

import (
	"net"
	"net/http"
	"runtime/debug"
	"sync"
)

const (
	// connectionBytes is the memory of a connection with an open stream: goroutine stacks and buffers (measured: 34
	// KiB, or 52 KiB with TLS), and about the same amount for memory that is not yet garbage-collected.
	connectionBytes    = 64 << 10
	tlsConnectionBytes = 100 << 10
	// The limit changes in steps of limitStep connections, because each change locks the heap.
	limitStep = 128
)

// memory sets the soft memory limit of the process. The limit grows with the number of open connections. With a fixed
// limit, many connections would make the garbage collector run all the time. It would take CPU time from a training run
// on the same machine.
type memory struct {
	base int64 // limit without connections, bytes
	each int64 // increase of the limit for each connection, bytes

	mu      sync.Mutex
	open    int // connections
	counted int // number of connections that the present limit includes
}

func (m *memory) set() { debug.SetMemoryLimit(m.base + int64(m.counted)*m.each) }

// track implements http.Server.ConnState.
func (m *memory) track(_ net.Conn, state http.ConnState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch state {
	case http.StateNew:
		m.open++
	case http.StateClosed, http.StateHijacked:
		m.open--
	}
	if counted := (m.open + limitStep - 1) / limitStep * limitStep; counted > m.counted ||
		counted < m.counted-limitStep {
		m.counted = counted
		m.set()
	}
}
