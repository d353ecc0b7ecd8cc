package compute

import (
	"context"
	"fmt"
	"runtime"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
)

// OpenDevice opens the configured device, with the rank's number of threads and the simulated slowdown of the testbed.
func (k *Rank) OpenDevice(context.Context) (err error) {
	threads := k.Process.Cfg.Device.Threads
	if threads == 0 && (k.Process.LocalRanks() > 1 || k.Process.Opts.Lab.Setup.CPUs > 0) {
		threads = k.Process.OwnCPUs()
		limit, err := cpu.ThreadLimit(k.Process.Opts.Env.Lookup)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		if limit > 0 {
			threads = min(threads, limit)
		}
	}
	if most := runtime.NumCPU(); threads > most {
		k.Process.Opts.Log.Warn(
			"device.threads: more threads than this process has CPUs, so the threads slow each other down", "got",
			threads, "using", most)
		threads = most
	}
	own := devices.Placement{Index: k.Process.Cfg.Device.Index, LocalRank: k.Process.Opts.Assignment.LocalRank,
		ShareGPU: k.Process.Cfg.Device.ShareGPU, Threads: threads, Log: k.Process.Opts.LogOf(logs.ComponentDevice)}
	kind := k.Process.Cfg.Device.Kind
	onCPU, err := k.Process.IsCPURank()
	if err != nil {
		return err
	}
	if onCPU {
		kind, own.Index = "cpu", -1
	}
	if k.Device, err = devices.Open(kind, own); err != nil {
		return err
	}
	k.Process.Later(k.Device.Close)
	if err := k.Process.Opts.Lab.Slow(k.Device, k.Process.Opts.LogOf(logs.ComponentLab)); err != nil {
		return err
	}
	if info := k.Device.Info(); info.Modelled && k.Process.Opts.Assignment.WorldSize > 1 {
		return exit.Usagef(
			"device.kind: device %s cannot exchange memory between processes; it is only for tests within one process",
			info.Name)
	}
	info := k.Device.Info()
	if k.Process.Cfg.Train.Precision == "bf16" && info.Kind == "cpu" && !info.FastBF16 {
		k.Process.Opts.LogOf(logs.ComponentDevice).Warn(
			"this CPU emulates bf16, which is many times slower than f32: set train.precision = \"auto\"", "device",
			info.Name)
	}
	k.Precision, err = devices.Precision(k.Process.Cfg.Train.Precision, info)
	return err
}

// UseDevice gives the rank a device that only models time, in place of the configured one, and the element type that
// such a device would use in a run. The session closes the device.
func (k *Rank) UseDevice(dev device.Device) (err error) {
	k.Device = dev
	k.Process.Later(dev.Close)
	if k.Precision, err = devices.Precision(k.Process.Cfg.Train.Precision, dev.Info()); err != nil {
		return err
	}
	k.Types = []devices.RankType{{Type: k.Precision.String()}}
	return nil
}

// ClockCPUs returns the value of measure.SpeedOptions.CPUs for this rank. This is the parameter cpus if measurements of
// the rank can use CPU time, and 0 if they must use wall time.
func (k *Rank) ClockCPUs(cpus float64) float64 {
	// A simulated slowdown makes the device wait, which uses no CPU time.
	if k.Process.Opts.Lab.Setup.Slowdown > 1 || k.Device.Info().Kind != "cpu" {
		return 0
	}
	return cpus
}

// LimitOfThreads returns the text "OMP_NUM_THREADS=N" if this variable gives the rank fewer threads than it has CPUs,
// otherwise "".
func (k *Rank) LimitOfThreads() string {
	limit, err := cpu.ThreadLimit(k.Process.Opts.Env.Lookup)
	info := k.Device.Info()
	if err != nil || limit == 0 || info.Kind != "cpu" || k.Process.Cfg.Device.Threads != 0 || info.Threads != limit ||
		limit >= k.Process.OwnCPUs() {
		return ""
	}
	return fmt.Sprintf("OMP_NUM_THREADS=%d", limit)
}
