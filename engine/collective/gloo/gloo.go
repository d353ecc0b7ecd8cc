package gloo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable: this program was built without Gloo. The text says why and what to do.
var ErrUnavailable = errors.New("gloo is unavailable")

// LibraryName is the file that package nativelib looks for.
const LibraryName = "libhetero_gloo.so"

// Control is what ranks know of each other beside the data. All methods may be called by any goroutine.
type Control interface {
	// Set stores a value under a key, once for all ranks.
	Set(ctx context.Context, key string, value []byte) error
	// Get returns the value of a key and waits until a rank has set it.
	Get(ctx context.Context, key string) ([]byte, error)
	// Broken is closed when a rank is gone or has given up; Err then tells.
	Broken() <-chan struct{}
	Err() error
	// Abort breaks the group for everybody, with a cause in words.
	Abort(cause error)
}

// Config describes a group as one of its ranks sees it.
type Config struct {
	Rank, Size int
	Control    Control
	// RankOf is the rank that an error of Control is about, negative if it is about none. For the rendezvous that is LostError.Rank.
	RankOf func(error) int
	// Name tells groups of one Control apart; the same on all ranks.
	Name string
	// Host is this rank's address or host name, on which the others reach it; Interface the name of its network interface.
	// One is enough; with neither it is the address of the host name.
	Host, Interface string
	// Timeout of an operation, from when a rank enters it; 0 = none. Time in which this rank's process is stopped does not count.
	Timeout time.Duration
}

func (c Config) check() error {
	switch {
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("got rank %d of %d", c.Rank, c.Size)
	case c.Size > 1 && (c.Control == nil || c.RankOf == nil):
		return errors.New("got no Control, or no RankOf")
	case c.Host != "" && c.Interface != "":
		return fmt.Errorf("got the host %q and the interface %q, want one of them", c.Host, c.Interface)
	}
	return nil
}

// key is of the store that the group shares with others.
func (c Config) key(name string) string { return "gloo/" + c.Name + "/" + name }
