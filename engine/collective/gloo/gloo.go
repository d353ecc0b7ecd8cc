package gloo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/ports"
)

// ErrUnavailable means that this program was built without Gloo. The text gives the reason and a remedy.
var ErrUnavailable = errors.New("gloo is unavailable")

// LibraryName is the name of the library, for package nativelib.
const LibraryName = "libhetero_gloo.so"

// Control exchanges small values and failures between ranks, outside the data connections. Any goroutine may call its
// methods.
type Control interface {
	// Set stores value under key. Each key is set once in the whole group.
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until a rank has set key, and returns its value.
	Get(ctx context.Context, key string) ([]byte, error)
	// Broken returns a channel that is closed when a rank is lost or has aborted. Err then returns the cause.
	Broken() <-chan struct{}
	Err() error
	// Abort breaks the group for all ranks, with the text of cause.
	Abort(cause error)
}

// Config describes a group from the view of one rank.
type Config struct {
	Rank, Size int
	Control    Control
	// RankOf returns the rank that an error of Control concerns, or a negative number. For an error of package
	// rendezvous it is LostError.Rank.
	RankOf func(error) int
	// Name distinguishes groups that share one Control; it is the same on all ranks.
	Name string
	// Host is the address or host name at which other ranks reach this rank. Interface is the name of this rank's
	// network interface; if set, it takes precedence over Host. If both are empty, Connect uses the address of the
	// machine's host name.
	Host, Interface string
	// Ports are the ports on which this rank may listen while the ranks connect; none: the system chooses a port.
	Ports ports.Range
	// Secret is the token of the run, the same on all ranks. Connections also need a key that ranks exchange through
	// Control. Empty: this key alone identifies a rank.
	Secret []byte
	// Encrypt sends all data through TLS; the same on all ranks.
	Encrypt bool
	// Timeout limits an operation, from when a rank enters it; 0: no limit. Time in which this rank's process is
	// stopped does not count.
	Timeout time.Duration
}

func (c Config) check() error {
	switch {
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("got rank %d of %d ranks, want a rank from 0 to the number of ranks minus 1", c.Rank, c.Size)
	case c.Size > 1 && (c.Control == nil || c.RankOf == nil):
		return errors.New("got no Control, or no RankOf")
	case c.Host != "" && c.Interface != "":
		return fmt.Errorf("got host %q and interface %q, want only one of the two", c.Host, c.Interface)
	}
	return nil
}

// key returns the key for a name of this group in the shared store.
func (c Config) key(name string) string { return "gloo/" + c.Name + "/" + name }
