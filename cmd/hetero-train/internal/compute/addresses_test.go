package compute

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// If an allocation fails near the limit of the address space, the error must state the limit, the addresses in use, and
// how to continue.
func TestAFailureNearTheLimitHasAdvice(t *testing.T) {
	const mib = 1 << 20
	full := memory.Addresses{Source: "RLIMIT_DATA", Flag: "-d", Limit: 400 * mib, Held: 390 * mib}
	roomy := full
	roomy.Held = 200 * mib
	kernel := fmt.Errorf("conv2d: %w: could not create a primitive", device.ErrDevice)
	for _, c := range []struct {
		name   string
		err    error
		state  memory.Addresses
		advice bool
	}{
		{"near the limit", kernel, full, true},
		{"no memory for a buffer", fmt.Errorf("alloc: %w", device.ErrOutOfMemory), full, true},
		{"far from the limit", kernel, roomy, false},
		{"an error of other kind", errors.New("no such model"), full, false},
		{"a refused batch", &replica.MemoryError{Err: device.ErrOutOfMemory}, full, false},
	} {
		got := adviseLimit(c.err, c.state, 16)
		advised := got.Error() != c.err.Error()
		if advised != c.advice || !errors.Is(got, c.err) {
			t.Errorf("%s: got %q", c.name, got)
		}
		for _, part := range []string{"RLIMIT_DATA permits 400.0 MiB", "reserved 390.0 MiB", "ulimit -d 507904",
			"lower data.batch_size", "16 samples"} {
			if c.advice && !strings.Contains(got.Error(), part) {
				t.Errorf("%s: got %q, want %q", c.name, got, part)
			}
		}
	}
	if err := adviseLimit(nil, full, 16); err != nil {
		t.Errorf("without a failure: got %v", err)
	}
}

// A process must be refused at its start if one byte of address space is missing for its threads, heaps or libraries.
func TestThreadsAndHeapsNeedAddresses(t *testing.T) {
	const mib = 1 << 20
	a := memory.Addresses{Source: "RLIMIT_DATA", Flag: "-d", Limit: 400 * mib, Held: 200 * mib, Later: 200 * mib}
	check := func(a memory.Addresses, threads int, want ...string) {
		t.Helper()
		if err := checkAddresses(a, threads); err != nil {
			t.Errorf("exactly enough: got %v", err)
		}
		a.Held++
		err := checkAddresses(a, threads)
		for _, part := range append(want, "RLIMIT_DATA permits 400.0 MiB") {
			if exit.Code(err) != exit.Device || !strings.Contains(err.Error(), part) {
				t.Errorf("got %v, want %q", err, part)
			}
		}
	}
	check(a, 14, "up to 14 threads, heaps and native libraries need about 200.0 MiB more", "ulimit -d 507905")
	a.Held, a.Later = 304*mib, 10*mib // with small stacks
	check(a, 14, "native libraries need about 96.0 MiB more", "ulimit -d 507905")
	a.Later = 0
	check(a, 0, "start; threads, heaps and native libraries need about 96.0 MiB more")
}
