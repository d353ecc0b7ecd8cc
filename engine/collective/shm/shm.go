package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable means that this program cannot share memory between processes. The text gives the reason and a remedy.
var ErrUnavailable = errors.New("shared memory between ranks is unavailable")

// LibraryName is the name of the library, for package nativelib.
const LibraryName = "libhetero_shm.so"

// DefaultStageBytes is the value that is used if Config.StageBytes is 0.
const DefaultStageBytes = 1 << 20

// Config describes a group from the view of one rank.
type Config struct {
	Rank, Size int
	// Address is the address at which the ranks meet. It must be equal for all ranks of a group, and different for
	// every other group (NewAddress).
	Address string
	// Token is a secret of the job, equal on all ranks; "": none.
	Token string
	// Timeout is the time limit of an operation, counted from the time at which a rank enters it; 0: no limit.
	Timeout time.Duration
	// StageBytes is the number of bytes that a rank copies to shared memory in one turn. It must be a multiple of 64; 0
	// means DefaultStageBytes. Each rank uses four times this amount of shared memory. The value of rank 0 applies to
	// all ranks.
	StageBytes int64
}

// NewAddress returns a unique random address.
func NewAddress() string { return "hetero-train-" + rand.Text() }

func (c Config) check() error {
	switch {
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("got rank %d of %d ranks, want a rank from 0 to the number of ranks minus 1", c.Rank, c.Size)
	case c.Address == "" && c.Size > 1:
		return errors.New("got no address")
	case len(c.Address) > 100:
		return fmt.Errorf("got an address of %d characters, want at most 100", len(c.Address))
	case c.StageBytes < 0 || c.StageBytes%64 != 0:
		return fmt.Errorf("got stages of %d bytes, want a multiple of 64", c.StageBytes)
	}
	return nil
}
