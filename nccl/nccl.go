package nccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// LibraryName is the file that package nativelib looks for.
const LibraryName = "libhetero_nccl.so"

// ErrUnusable: these ranks cannot have an NCCL communicator. The text says why and what to do.
var ErrUnusable = errors.New("nccl cannot be used by these ranks")

// Error is what NCCL failed with on this rank, in an operation that all ranks had agreed on.
type Error struct {
	Rank int
	Op   string // as collective.Describe says it
	Why  string // in NCCL's words
}

func (e *Error) Error() string { return fmt.Sprintf("nccl: rank %d: %s: %s", e.Rank, e.Op, e.Why) }

// Config describes a group as one of its ranks sees it.
type Config struct {
	// Control is a communicator of the host for the same ranks, which belongs to the NCCL communicator from then on, also where Connect
	// fails. It carries device memory as well (package staged). Its time-out is to be Timeout.
	Control collective.Communicator
	// Device is this rank's GPU.
	Device device.Device
	// Timeout of an operation; 0 = none: one that hangs within NCCL while all ranks live never ends then, unless the communicator is aborted.
	Timeout time.Duration
	// MinCTAs and MaxCTAs bound the thread blocks, and with them the multiprocessors, that an operation takes from the computation
	// beside it; 0 = NCCL's choice.
	MinCTAs, MaxCTAs int
	// ShareGPU allows several ranks on one GPU: a test of the code, not of its speed.
	ShareGPU bool
	// Host names the machine, to tell whether two ranks are on one GPU.
	Host string

	library string // of tests, in place of LibraryName
	pretend func(*hello)
}

func (c Config) check() (device.AddressedDevice, error) {
	if c.Control == nil {
		return nil, errors.New("got no Control")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("got a time-out of %v, want more than 0, or 0 for none", c.Timeout)
	}
	if c.MinCTAs < 0 || c.MaxCTAs < 0 || c.MaxCTAs > 0 && c.MinCTAs > c.MaxCTAs {
		return nil, fmt.Errorf("got at least %d and at most %d CTAs", c.MinCTAs, c.MaxCTAs)
	}
	dev, ok := c.Device.(device.AddressedDevice)
	if !ok || c.Device.Info().Kind != "cuda" {
		return nil, fmt.Errorf("%w: device %T is not a GPU", ErrUnusable, c.Device)
	}
	return dev, nil
}

// Version is NCCL's, for example 2.28.9, as ncclGetVersion codes it: 22809.
type Version int

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// Versions from which NCCL can do something that this package, or its users, ask about.
const (
	MaxCTAs      Version = 21700 // ncclConfig_t.maxCTAs
	Profiler     Version = 22300 // profiler plugins
	StrictChoice Version = 22400 // NCCL_ALGO and NCCL_PROTO by collective, strictly
	Symmetric    Version = 22700 // windows of symmetric memory
	Shrink       Version = 22700 // ncclCommShrink
	CopyEngine   Version = 22800 // all-gathers by copy engines: no multiprocessors at all
	Revoke       Version = 22807 // ncclCommRevoke
	Grow         Version = 22900 // ncclCommGrow
	MultiRankGPU Version = 23003 // NCCL_MULTI_RANK_GPU_ENABLE
)

// Has says whether a version has what came with another.
func (v Version) Has(since Version) bool { return v >= since }
