package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable: this program cannot share memory between processes. The text says why and what to do.
var ErrUnavailable = errors.New("shared memory between ranks is unavailable")

// LibraryName is the file that package nativelib looks for.
const LibraryName = "libhetero_shm.so"

// DefaultStageBytes is Config.StageBytes where it is 0.
const DefaultStageBytes = 1 << 20

// Config describes a group as one of its ranks sees it.
type Config struct {
	Rank, Size int
	// Address is where the ranks meet, the same for all and for no other group: see NewAddress.
	Address string
	// Token is a secret of the job, the same for all; "" = none.
	Token string
	// Timeout of an operation, from when a rank enters it; 0 = none.
	Timeout time.Duration
	// StageBytes is what a rank stages in a turn; 0 = DefaultStageBytes, else a multiple of 64. Each rank takes four times as much
	// shared memory. Rank 0 decides.
	StageBytes int64
}

// NewAddress makes up an address that no other group has.
func NewAddress() string { return "hetero-train-" + rand.Text() }

func (c Config) check() error {
	switch {
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("got rank %d of %d", c.Rank, c.Size)
	case c.Address == "" && c.Size > 1:
		return errors.New("got no address")
	case len(c.Address) > 100:
		return fmt.Errorf("got an address of %d characters, want at most 100", len(c.Address))
	case c.StageBytes < 0 || c.StageBytes%64 != 0:
		return fmt.Errorf("got stages of %d bytes, want a multiple of 64", c.StageBytes)
	}
	return nil
}
