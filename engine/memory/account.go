package memory

import (
	"fmt"
	"strings"
)

// Part is the memory that a rank needs for one purpose.
type Part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Account lists the memory that one rank needs for a number of samples.
type Account struct {
	Samples int `json:"samples"`
	// Unified is set if the device computes in host memory. Both lists then count against Limit.
	Unified bool   `json:"unified"`
	Device  []Part `json:"device"` // memory of the device
	Host    []Part `json:"host"`   // memory of the process apart from Device
	// Optional is host memory that the rank takes only if the limit leaves room for it. Without it, the rank works, but
	// more slowly.
	Optional []Part `json:"optional,omitempty"`

	DeviceLimit int64 `json:"device_limit"` // bytes of the device that the rank may use; 0: unknown
	Limit       Limit `json:"limit"`        // memory that the process may use
}

// Limit is the memory that a process may use, including the memory that it uses already.
type Limit struct {
	Bytes  int64  `json:"bytes"`            // 0: unknown
	Source string `json:"source,omitempty"` // what sets the limit, such as "memory.max of /sys/fs/cgroup/job"
	Ranks  int    `json:"ranks,omitempty"`  // number of ranks that divide the memory of the source; each may use Bytes
	// Addresses is set if reserved addresses also count against the limit. The kernel cannot reclaim anything when such
	// a limit is reached.
	Addresses bool `json:"addresses,omitempty"`
	// Flag is the option of the shell's ulimit that sets the limit of addresses; "": Addresses is not set
	Flag string `json:"-"`
	// Excluded is the part of the limit of addresses that is not in Bytes: addresses that the process reserves without
	// using them, now and later
	Excluded int64 `json:"excluded_bytes,omitempty"`
	tensors  bool  // Own.Tensors
	// Hard is the number of bytes that the process may use if the machine swaps and reclaims caches; 0: not more than
	// Bytes
	Hard int64 `json:"hard_bytes,omitempty"`
}

// addressSpread is the assumed maximum difference between the addresses that two processes of the same program reserve,
// in bytes. A run reads images before it determines its memory, and a plan does not.
const addressSpread = 36 << 20

// Spread returns the bytes of a limit of addresses that a promise must leave free, because the next process may reserve
// that much more. For other limits, it returns 0.
func (l Limit) Spread() int64 {
	if !l.Addresses {
		return 0
	}
	return addressSpread
}

// Raise returns the advice to raise a limit of addresses so far that the process may use the given number of bytes. It
// returns "" for other limits.
func (l Limit) Raise(bytes int64) string {
	if l.Flag == "" {
		return ""
	}
	if l.tensors {
		bytes += bytes/(tensorSpread-1) + 1
	}
	least := bytes + l.Excluded + l.Spread()
	return fmt.Sprintf("raise the limit to at least %s (ulimit %s %d), or remove it (ulimit %s unlimited)", Size(least),
		l.Flag, (least+1023)>>10, l.Flag)
}

// Sum returns the sum of parts, bytes.
func Sum(parts []Part) (bytes int64) {
	for _, p := range parts {
		bytes += p.Bytes
	}
	return bytes
}

// HostBytes returns the bytes that count against Limit, without Optional.
func (a Account) HostBytes() int64 {
	if a.Unified {
		return Sum(a.Host) + Sum(a.Device)
	}
	return Sum(a.Host)
}

// DeviceBytes returns the bytes of the device.
func (a Account) DeviceBytes() int64 { return Sum(a.Device) }

// Fits reports whether the account stays within both limits.
func (a Account) Fits() bool {
	return (a.DeviceLimit == 0 || a.DeviceBytes() <= a.DeviceLimit) &&
		(a.Limit.Bytes == 0 || a.HostBytes() <= a.Limit.Bytes)
}

// Left returns the bytes of Limit that remain for optional parts, 0 or more. known is false without a limit.
func (a Account) Left() (bytes int64, known bool) {
	return max(a.Limit.Bytes-a.HostBytes(), 0), a.Limit.Bytes > 0
}

// Grant gives the optional parts, in their order, the bytes that the account leaves free, but none more than its size.
// A part whose name is in the list whole gets all its bytes or none.
func (a Account) Grant(whole ...string) Account {
	left, known := a.Left()
	if !known {
		return a
	}
	granted := make([]Part, 0, len(a.Optional))
	for _, p := range a.Optional {
		bytes := min(p.Bytes, left)
		for _, name := range whole {
			if name == p.Name && bytes < p.Bytes {
				bytes = 0
			}
		}
		left -= bytes
		granted = append(granted, Part{p.Name, bytes})
	}
	a.Optional = granted
	return a
}

// Short states which limit the account exceeds, and lists the parts that count against this limit.
func (a Account) Short() string {
	if a.DeviceLimit > 0 && a.DeviceBytes() > a.DeviceLimit {
		return fmt.Sprintf("%s of device memory, but the rank may use only %s: %s", Size(a.DeviceBytes()),
			Size(a.DeviceLimit), list(a.Device))
	}
	parts := a.Host
	if a.Unified {
		parts = append(append([]Part{}, a.Device...), a.Host...)
	}
	return fmt.Sprintf("%s of memory, but this process may use only %s (%s): %s", Size(a.HostBytes()),
		Size(a.Limit.Bytes), a.Limit.Source, list(parts))
}

// Raise returns the advice to raise the limit of the process so far that the account fits. It returns "" if the account
// fits, or if only another limit is too low.
func (a Account) Raise() string {
	if a.DeviceLimit > 0 && a.DeviceBytes() > a.DeviceLimit || a.Limit.Bytes == 0 || a.HostBytes() <= a.Limit.Bytes {
		return ""
	}
	return a.Limit.Raise(a.HostBytes())
}

// String lists the parts of at least 0.1 MiB.
func (a Account) String() string {
	if a.Unified {
		return fmt.Sprintf("%s: %s", Size(a.HostBytes()), list(append(append([]Part{}, a.Device...), a.Host...)))
	}
	return fmt.Sprintf("device %s: %s; host %s: %s", Size(a.DeviceBytes()), list(a.Device), Size(a.HostBytes()),
		list(a.Host))
}

func list(parts []Part) string {
	var words []string
	for _, p := range parts {
		if p.Bytes >= 1<<20/10 {
			words = append(words, p.Name+" "+Size(p.Bytes))
		}
	}
	return strings.Join(words, ", ")
}

// Size formats a number of bytes with a unit.
func Size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
