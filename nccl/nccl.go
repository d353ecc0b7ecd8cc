package nccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// LibraryName is the name of the library, for package nativelib.
const LibraryName = "libhetero_nccl.so"

// ErrUnusable means that these ranks cannot have an NCCL communicator. The text gives the reason and a remedy.
var ErrUnusable = errors.New("nccl cannot be used by these ranks")

// Error reports a failure of NCCL on this rank, in an operation on which all ranks had agreed.
type Error struct {
	Rank int
	Op   string // name of the operation, as collective.Describe returns it
	Why  string // NCCL's message
}

func (e *Error) Error() string { return fmt.Sprintf("nccl: rank %d: %s: %s", e.Rank, e.Op, e.Why) }

// Config describes a process group for one of its ranks.
type Config struct {
	// Control is a host communicator for the same ranks. It must also transfer device memory (package staged). Its
	// time-out must equal Timeout. Connect takes ownership of Control, even if Connect fails.
	Control collective.Communicator
	// Device is this rank's GPU.
	Device device.Device
	// Timeout limits an operation; 0: no limit. Without a limit, an operation that hangs within NCCL while all ranks
	// are running ends only when the communicator is aborted.
	Timeout time.Duration
	// MinCTAs and MaxCTAs bound the number of thread blocks of an operation, and thereby the multiprocessors that the
	// operation takes from concurrent computation; 0: NCCL's choice.
	MinCTAs, MaxCTAs int
	// ShareGPU permits several ranks on one GPU, for functional tests; their speed has no meaning.
	ShareGPU bool
	// Host is the name of the machine. It serves to detect two ranks on one GPU.
	Host string

	library string // replaces LibraryName in tests; "": LibraryName
	pretend func(*hello)
}

func (c Config) check() (device.AddressedDevice, error) {
	if c.Control == nil {
		return nil, errors.New("got no Control")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("got a time-out of %v, want at least 0 (0: no time-out)", c.Timeout)
	}
	if c.MinCTAs < 0 || c.MaxCTAs < 0 || c.MaxCTAs > 0 && c.MinCTAs > c.MaxCTAs {
		return nil,
			fmt.Errorf("got a minimum of %d and a maximum of %d CTAs, want values of at least 0 and a minimum up to the maximum",
				c.MinCTAs, c.MaxCTAs)
	}
	dev, ok := c.Device.(device.AddressedDevice)
	if !ok || c.Device.Info().Kind != "cuda" {
		return nil, fmt.Errorf("%w: device %T is not a GPU", ErrUnusable, c.Device)
	}
	return dev, nil
}

// Version is a version of NCCL in the encoding of ncclGetVersion: 2.28.9 is 22809.
type Version int

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// Versions that introduced a feature on which this package or its users depend.
const (
	MaxCTAs      Version = 21700 // ncclConfig_t.maxCTAs
	Profiler     Version = 22300 // profiler plugins
	StrictChoice Version = 22400 // NCCL_ALGO and NCCL_PROTO per operation; unknown names are an error
	MultiRankGPU Version = 23003 // NCCL_MULTI_RANK_GPU_ENABLE
)

// Has reports whether v is version since or a later one.
func (v Version) Has(since Version) bool { return v >= since }
