package compute

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// startBytes are the addresses that a process reserves at least before it has a model: threads, native libraries, their
// kernels. simple_cnn on 2 CPUs took 70 to 105 MiB.
const startBytes = 96 << 20

// nearLimit are addresses that native libraries and the kernels of a small model take. If fewer are left, they are the
// probable reason of a failure of the device: libraries report no memory as an unknown failure.
const nearLimit = 96 << 20

// CheckAddresses returns an error if RLIMIT_AS or RLIMIT_DATA leaves less than the threads and heaps of this rank
// reserve without any model. If it does, the C library aborts the process because it cannot start a thread. It must
// precede OpenDevice, which starts most threads. The account of the rank subtracts the same addresses, so a run without
// this error may still be refused.
func (k *Rank) CheckAddresses() error {
	opts, kind := k.Process.Opts, k.Process.Cfg.Device.Kind
	onCPU, err := k.Process.IsCPURank()
	if err != nil {
		return err
	}
	// "auto" opens the CPU device on a machine without GPUs.
	if onCPU || kind == "auto" && !devices.HasGPU(k.Process.Cfg, opts.Env.Lookup) {
		kind = "cpu"
	}
	threads := process.MostThreads(process.DeviceThreads(kind, k.Process.Cfg, opts), opts.Assignment.WorldSize > 1)
	for _, a := range memory.ListAddresses(memory.System(),
		memory.Own{Threads: threads, OneArena: memory.OneArena()}) {
		if err := checkAddresses(a, threads); err != nil {
			return err
		}
	}
	return nil
}

// CheckStart returns an error if RLIMIT_AS or RLIMIT_DATA leaves too little for any model. It is for a process that
// opens the device but trains no model, and that may plan for a machine with other limits.
func CheckStart() error {
	for _, a := range memory.ListAddresses(memory.System(), memory.Own{}) {
		a.Later = 0
		if err := checkAddresses(a, 0); err != nil {
			return err
		}
	}
	return nil
}

// checkAddresses checks one limit. threads is the largest number of threads of the process; 0: unknown.
func checkAddresses(a memory.Addresses, threads int) error {
	need, parts := max(a.Later, startBytes), "threads"
	if a.Left() >= need {
		return nil
	}
	if threads > 0 {
		parts = fmt.Sprintf("up to %d threads", threads)
	}
	return exit.With(exit.Device, fmt.Errorf("open the device: %s permits %s of addresses, and this process has reserved %s at its start; %s, heaps and native libraries need about %s more, without any model: %s",
		a.Source, memory.Size(a.Limit), memory.Size(a.Held), parts, memory.Size(need),
		raise(a, a.Held+need+nearLimit)))
}

// raise returns the advice to raise a limit to at least this many bytes.
func raise(a memory.Addresses, bytes int64) string {
	return fmt.Sprintf("raise the limit to at least %s (ulimit %s %d), or remove it (ulimit %s unlimited)",
		memory.Size(bytes), a.Flag, (bytes+1023)>>10, a.Flag)
}

// AdviseLimit adds advice to a failure of the device, if RLIMIT_AS or RLIMIT_DATA is the probable reason. An error that
// has the account of the rank, and all others, remain unchanged. samples is the number of samples of a micro-batch.
func AdviseLimit(err error, samples int) error {
	if a, limited := memory.ReadAddresses(memory.System()); limited {
		return adviseLimit(err, a, samples)
	}
	return err
}

func adviseLimit(err error, a memory.Addresses, samples int) error {
	if err == nil || a.Left() >= nearLimit || errors.As(err, new(*replica.MemoryError)) ||
		!errors.Is(err, device.ErrDevice) && !errors.Is(err, device.ErrOutOfMemory) {
		return err
	}
	return fmt.Errorf("%w: the limit of addresses is the probable reason: %s permits %s, and this process has reserved %s, without the memory of this failure: %s, or lower data.batch_size (a micro-batch now has %d samples; hetero-train plan --set data.batch_size=1 prints the largest one that fits)",
		err, a.Source, memory.Size(a.Limit), memory.Size(a.Held), raise(a, a.Limit+nearLimit), samples)
}
