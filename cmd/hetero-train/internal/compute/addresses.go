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

// startBytes is the minimum address space, in bytes, that a process reserves for threads, native libraries and their
// kernels before it has a model. simple_cnn on 2 CPUs reserved 70 to 105 MiB.
const startBytes = 96 << 20

// nearLimit is the address space, in bytes, that native libraries and the kernels of a small model take. If less is
// left, the limit is the probable reason for a failure of the device. The libraries report a lack of memory only as an
// unknown failure.
const nearLimit = 96 << 20

// CheckAddresses returns an error if RLIMIT_AS or RLIMIT_DATA is too low for the threads and heaps of this rank, even
// without a model. With such a limit, the C library would abort the process, because it could not start a thread.
// CheckAddresses must run before OpenDevice, which starts most threads. The memory account of the rank counts the same
// addresses, so the account may refuse a run that CheckAddresses accepts.
func (k *Rank) CheckAddresses() error {
	opts, kind := k.Process.Opts, k.Process.Cfg.Device.Kind
	onCPU, err := k.Process.IsCPURank()
	if err != nil {
		return err
	}
	// On a machine without GPUs, "auto" opens the CPU device.
	if onCPU || kind == "auto" && !devices.HasGPU(k.Process.Cfg, opts.Env.Lookup) {
		kind = "cpu"
	}
	threads := process.MostThreads(process.DeviceThreads(kind, k.Process.Cfg, opts), opts.Assignment.WorldSize > 1)
	for _, a := range memory.ListAddresses(memory.System(),
		memory.Own{Threads: threads, OneArena: memory.OneArena(), Stack: memory.ThreadStack()}) {
		if err := checkAddresses(a, threads); err != nil {
			return err
		}
	}
	return nil
}

// CheckStart returns an error if RLIMIT_AS or RLIMIT_DATA is too low for a process without a model. It is for a process
// that opens the device but trains no model. Such a process may plan for a machine with other limits.
func CheckStart() error {
	for _, a := range memory.ListAddresses(memory.System(), memory.Own{}) {
		a.Later = 0
		if err := checkAddresses(a, 0); err != nil {
			return err
		}
	}
	return nil
}

// checkAddresses checks one limit. The parameter threads is the largest number of threads of the process; 0: unknown.
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

// AdviseLimit adds advice to a failure of the device, if RLIMIT_AS or RLIMIT_DATA is the probable reason. It returns
// other errors unchanged, also a MemoryError, which already contains the memory account of the rank. The parameter
// samples is the number of samples of a micro-batch.
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
