package devices

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
)

// Placement selects one device of a kind on this machine, with its options.
type Placement struct {
	Index     int // value of device.index; -1: the local rank selects the device
	LocalRank int // local rank; -1: unknown
	ShareGPU  bool
	Threads   int
	Log       *slog.Logger
}

// Alone returns the placement of a process that is not one of several ranks.
func Alone(threads int) Placement {
	return Placement{Index: -1, Threads: threads, Log: slog.New(slog.DiscardHandler)}
}

// open opens the device of driver d that p selects.
func (p Placement) open(d device.Driver) (device.Device, error) {
	index, err := 0, error(nil)
	if all, ok := d.(device.Counter); ok {
		count, err := all.Count()
		if err != nil {
			return nil, err
		}
		if index, err = p.pick(d.Kind(), count); err != nil {
			return nil, err
		}
	} else if p.Index > 0 {
		return nil, exit.Usagef("device.index: got %d, want 0 or -1: a machine has only one device %s", p.Index,
			d.Kind())
	}
	if d.Kind() == "cpu" && p.Threads == 0 { // report it, so that "auto" selects no other device
		if _, err := cpu.ThreadLimit(os.LookupEnv); err != nil {
			return nil, exit.With(exit.Usage, err)
		}
	}
	dev, err := d.Open(index, device.Options{Threads: p.Threads})
	if err != nil && !errors.Is(err, device.ErrUnavailable) {
		err = exit.With(exit.Device, err)
	}
	return dev, err
}

// pick returns the index of the device to use. The parameter count is the number of visible devices. If only one device
// is visible, every rank may use it, because launchers often make only one device visible to each rank. The rendezvous
// later detects a GPU that several ranks use.
func (p Placement) pick(kind string, count int) (int, error) {
	switch {
	case p.Index >= count:
		return 0,
			exit.Usagef("device.index: got %d, want the number of one of the %d %s devices that are visible to this process, from 0",
				p.Index, count, kind)
	case p.Index >= 0:
		return p.Index, nil
	case count == 1:
		return 0, nil
	case p.LocalRank < 0:
		return 0, exit.Usagef("cannot choose one of the %d %s devices, because the launcher does not set a local rank for this process: set device.index, or make one device visible to each rank",
			count, kind)
	case p.LocalRank < count || p.ShareGPU:
		return p.LocalRank % count, nil
	}
	return 0, exit.Usagef("rank %d of this machine needs its own device %s, but the machine has %d: start fewer ranks (parallel.ranks), or set device.share_gpu = true",
		p.LocalRank, kind, count)
}

// Open opens the configured device. With "auto", it never selects the reference device. If a native library is missing,
// the error explains how to build the library.
func Open(kind string, p Placement) (device.Device, error) {
	var reasons []error
	for _, d := range Drivers {
		if d.Kind() != kind && !(kind == "auto" && d.Automatic) {
			continue
		}
		dev, err := p.open(d.Driver)
		if err == nil {
			for _, why := range reasons {
				p.passedOver(why)
			}
			return dev, nil
		}
		// The device exists but does not work. Another device would hide this failure.
		if !errors.Is(err, device.ErrUnavailable) {
			return nil, err
		}
		if !strings.Contains(err.Error(), d.Kind()+":") { // some errors already contain the kind
			err = fmt.Errorf("device %s: %w", d.Kind(), err)
		}
		reasons = append(reasons, err)
	}
	if len(reasons) == 0 {
		names := []string{"auto"}
		for _, d := range Drivers {
			names = append(names, d.Kind())
		}
		return nil, exit.Usagef("device: got %q, want %s", kind, strings.Join(names, ", "))
	}
	absent := func(err error) bool { return errors.As(err, new(device.AbsentError)) }
	if slices.ContainsFunc(reasons, func(err error) bool { return !absent(err) }) {
		reasons = slices.DeleteFunc(reasons, absent) // the user cannot fix missing hardware
	}
	err := errors.Join(reasons...)
	if kind != (cuda.Driver{}).Kind() {
		err = fmt.Errorf("%w; device.kind = \"reference\" works on every machine, but is about a thousand times slower",
			err)
	}
	return nil, exit.With(exit.Usage, err)
}

// passedOver logs why "auto" did not select a device. If the user can fix the cause, one rank of each machine logs a
// warning.
func (p Placement) passedOver(why error) {
	var absent device.AbsentError
	switch {
	case errors.Is(why, cuda.ErrNotBuilt):
		p.Log.Debug(why.Error())
	case errors.As(why, &absent):
		p.Log.Info(absent.Error())
	case p.LocalRank > 0:
		p.Log.Info("device.kind = \"auto\" skips a device", "reason", why)
	default:
		p.Log.Warn("device.kind = \"auto\" skips a device", "reason", why)
	}
}

// LocalDevices returns the default number of ranks of a machine. This is one for each device of the kind that
// device.kind or "auto" selects, plus parallel.cpu_ranks.
func LocalDevices(cfg *config.Config, lookup func(string) (string, bool)) int {
	return max(localGPUs(cfg.Device, lookup)+cfg.Parallel.CPURanks, 1)
}

// HasGPU reports whether ranks of this machine compute on its GPUs.
func HasGPU(cfg *config.Config, lookup func(string) (string, bool)) bool {
	return localGPUs(cfg.Device, lookup) > 0
}

// localGPUs returns the number of ranks of a machine that compute on its GPUs.
func localGPUs(c config.Device, lookup func(string) (string, bool)) int {
	slices := cuda.ReadVisible(lookup(cuda.VisibleVariable)).Slices()
	for _, d := range Drivers {
		all, ok := d.Driver.(device.Counter)
		if !ok || d.Kind() != c.Kind && !(c.Kind == "auto" && d.Automatic) {
			continue
		}
		n, err := all.Count()
		switch {
		case err != nil:
		case c.Index >= 0:
			return 1
		default:
			return max(n, slices) // CUDA counts only one of several visible MIG slices
		}
	}
	return 0
}
