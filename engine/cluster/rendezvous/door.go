package rendezvous

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/crowd"
)

// leastPending plus pendingPerRank for each rank is the number of connections that may be in the handshake at the same
// time. A handshake takes two round trips. A rank must try several times if another program on its machine opens more
// connections than this number in that time.
const (
	leastPending   = 256
	pendingPerRank = 4
)

// errCrowded is the error of a handshake that the server has ended in favour of a newer connection.
var errCrowded = errors.New("too many connections are in the handshake, most of them from this address")

// door limits the number of connections in the handshake, and logs failed handshakes.
type door struct {
	*crowd.Crowd
	log *slog.Logger

	mu       sync.Mutex
	closed   bool
	lastSaid map[string]time.Time // time of the last logged failure, by address
}

func newDoor(ranks int, log *slog.Logger) *door {
	return &door{Crowd: crowd.New(leastPending + pendingPerRank*ranks), log: log, lastSaid: map[string]time.Time{}}
}

// close drops all connections in the handshake.
func (d *door) close() {
	d.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// complain logs a failed handshake, for each address at most once per second.
func (d *door) complain(conn net.Conn, err error) {
	from := crowd.Address(conn.RemoteAddr().String())
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.closed || now.Sub(d.lastSaid[from]) < time.Second {
		return
	}
	if len(d.lastSaid) >= 1024 {
		clear(d.lastSaid)
	}
	d.lastSaid[from] = now
	d.log.Warn("rejected a connection to the rendezvous port", "from", from, "reason", err)
}
