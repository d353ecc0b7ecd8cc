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
	// Shape is how small operations travel, the same on all ranks. nil: the ranks measure which shape is fastest.
	Shape *Shape
}

// Shape is how ranks enter an operation: the path of the signatures, and of the data of small operations. Data is
// reduced in the order of ranks on each path, so the shape changes no bit of a result.
type Shape struct {
	// Radix 0: each rank sends to all other ranks. Radix k ≥ 2: along a tree with rank 0 on top, whose depth is log_k
	// of the number of ranks. The ranks together send 2·(ranks-1) messages: two for a rank, in the mean. Rank 0 sends
	// and receives up to (k-1)·log_k of the number of ranks, rounded up.
	Radix int
	// Bytes limits small operations: no rank contributes more bytes to one.
	Bytes int64
}

func (s Shape) String() string {
	if s.Radix == 0 {
		return fmt.Sprintf("each to all others, up to %d bytes", s.Bytes)
	}
	return fmt.Sprintf("tree of radix %d, up to %d bytes", s.Radix, s.Bytes)
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
	if s := c.Shape; s != nil && (s.Radix < 0 || s.Radix == 1 || s.Radix > max(c.Size, 2) || s.Bytes < 0 ||
		s.Bytes > directBytes) {
		return fmt.Errorf("got the shape %+v, want radix 0 or 2 to the number of ranks, and 0 to %d bytes", *s,
			directBytes)
	}
	return nil
}

// directBytes is the size of small operations if each rank sends to all others: the bytes of all ranks together. Larger
// operations send fewer bytes if each rank reduces a part.
const directBytes = 64 << 10

// maxTreeBytes is the largest size of small operations, in bytes of each rank. Larger: more memory at the top of a
// tree.
const maxTreeBytes = 16 << 10

// key returns the key for a name of this group in the shared store.
func (c Config) key(name string) string { return "gloo/" + c.Name + "/" + name }
