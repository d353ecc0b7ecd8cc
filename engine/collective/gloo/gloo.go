package gloo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/ports"
)

// ErrUnavailable means that this program cannot use Gloo. The text gives the reason and a remedy.
var ErrUnavailable = errors.New("gloo is unavailable")

// LibraryName is the name of the library, for package nativelib.
const LibraryName = "libhetero_gloo.so"

// Control exchanges small values and failures between ranks, outside the data connections. It must be safe for
// concurrent use.
type Control interface {
	// Set stores value under key. In the whole group, each key may be set only once.
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until a rank has set key, and returns its value.
	Get(ctx context.Context, key string) ([]byte, error)
	// Broken returns a channel that is closed when a rank is lost or has aborted. Err then returns the cause.
	Broken() <-chan struct{}
	Err() error
	// Abort breaks the group for all ranks. Their errors contain the text of cause.
	Abort(cause error)
}

// Config describes a group from the view of one rank.
type Config struct {
	Rank, Size int
	Control    Control
	// RankOf returns the rank that an error of Control concerns, or a negative number if there is none. For an error of
	// package rendezvous, this rank is LostError.Rank.
	RankOf func(error) int
	// Name distinguishes groups that share one Control. It must be equal on all ranks.
	Name string
	// Host is the address or host name at which other ranks reach this rank. Interface is the name of this rank's
	// network interface; if set, it takes precedence over Host. If both are empty, Connect uses the address of the
	// machine's host name.
	Host, Interface string
	// Ports are the ports on which this rank may listen while the ranks connect. If empty, the system chooses a port.
	Ports ports.Range
	// Secret is the token of the run, equal on all ranks. A connecting rank must know this token and a key that the
	// ranks exchange through Control. If Secret is empty, the key is sufficient.
	Secret []byte
	// If Encrypt is true, all data is sent through TLS. It must be equal on all ranks.
	Encrypt bool
	// Timeout is the time limit of an operation, counted from the time at which a rank enters it; 0: no limit. Time in
	// which this rank's process is stopped does not count.
	Timeout time.Duration
	// Shape is the path of small operations, equal on all ranks. nil: the ranks measure several shapes and use the
	// fastest one.
	Shape *Shape
}

// Shape is the path (topology) of the signatures, and of the data of small operations. Data is reduced in the order of
// ranks on each path, so results are bit-equal for all shapes.
type Shape struct {
	// Radix 0: each rank sends to all other ranks. Radix k ≥ 2: a tree with rank 0 as the root, whose depth is d =
	// log_k of the number of ranks, rounded up. In a tree, all ranks together send 2·(ranks-1) messages, on average two
	// per rank. Rank 0 sends and receives up to (k-1)·d messages.
	Radix int
	// Bytes is the maximum contribution of a rank to a small operation, in bytes.
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

// directBytes is the maximum size of small operations if each rank sends to all others. The size is the number of bytes
// of all ranks together. Larger operations send fewer bytes if each rank reduces a part.
const directBytes = 64 << 10

// maxTreeBytes is the maximum size of small operations in a tree, in bytes per rank. A larger value takes more memory
// at the root of the tree.
const maxTreeBytes = 16 << 10

// key returns the key for a name of this group in the shared store.
func (c Config) key(name string) string { return "gloo/" + c.Name + "/" + name }
