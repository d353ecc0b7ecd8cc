package compute

import (
	"context"
	"fmt"
	"runtime"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/ports"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Rank is a process that computes on a device, alone or as one of several ranks.
type Rank struct {
	Process   *session.Session
	Device    device.Device
	Precision tensor.DType       // element type of this rank's activations
	Types     []devices.RankType // element types of all ranks
	Team      *process.Team      // nil in a run of one rank
	Telemetry *Telemetry         // nil if profile.enabled is not set
	// Links describes the links of all ranks, by rank. The links of a machine belong to its first rank.
	Links     [][]telemetry.Link
	hostLimit *memory.Limit // nil: not measured yet
	own       memory.Own    // addresses that hostLimit excludes
	released  int64         // value of releasedBytes when hostLimit was measured
	pidSpaces []string      // PID namespaces, by rank
	sharers   int           // number of ranks on this rank's GPU; 0 if unknown or without a GPU
	growth    int           // value of GOGC, percent; negative: off
}

// NewRank returns a rank without an open device.
func NewRank(cfg *config.Config, opts session.Options) *Rank {
	return &Rank{Process: session.New(cfg, opts)}
}

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

// MemoryBytes returns the memory that this rank may use, in bytes, or 0 if it is unknown. For a device with its own
// memory, this is the rank's part of the memory that was free when the device was opened. For host memory, it is at
// most HostLimit.
func (k *Rank) MemoryBytes() int64 {
	info := k.Device.Info()
	if info.FreeBytes > 0 {
		return info.FreeBytes / int64(max(k.sharers, 1))
	}
	limit := k.HostLimit()
	if info.Threads == 0 || limit.Bytes == 0 {
		return info.MemoryBytes
	}
	return min(info.MemoryBytes, limit.Bytes)
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

// Ports returns the ports on which this rank may accept connections of other ranks.
func (k *Rank) Ports() ports.Range { return process.Ports(k.Process.Cfg.Parallel) }

// meeting returns the options of the rendezvous, except those that Meet adds.
func (k *Rank) meeting() (rendezvous.Options, error) {
	own, err := process.ReadCredentials(k.Process.Cfg.Parallel, k.Process.Opts.Env)
	assigned, p := k.Process.Opts.Assignment, k.Process.Cfg.Parallel
	addresses := assigned.Addresses()
	return rendezvous.Options{Rank: assigned.Rank, WorldSize: assigned.WorldSize, LocalRank: assigned.LocalRank,
		Address: addresses[0], Alternatives: addresses[1:], Generation: assigned.Start,
		Token: own.Token, Certificates: own.Certificates, Insecure: p.Insecure,
		Timeout:          session.Seconds(p.RendezvousTimeoutSeconds),
		HeartbeatTimeout: session.Seconds(p.TimeoutSeconds), Log: k.Process.Opts.LogOf(logs.ComponentCluster)}, err
}

// Refuse tells the ranks that wait for this rank why it does not join them. It does nothing on rank 0 and after Meet.
// It also does nothing if one supervisor has started all ranks, because the supervisor ends the others.
func (k *Rank) Refuse(ctx context.Context, cause error) {
	opts := k.Process.Opts
	_, supervised := opts.Env.Lookup(session.SupervisedVariable)
	if assigned := opts.Assignment; assigned.Rank == 0 || k.Team != nil ||
		supervised && assigned.LocalWorldSize == assigned.WorldSize {
		return
	}
	what := rendezvous.RefusedSettings
	if exit.Code(cause) == exit.Data {
		what = rendezvous.RefusedData
	}
	options, err := k.meeting()
	if err == nil {
		err = rendezvous.Refuse(ctx, options, what, cause)
	}
	if err != nil {
		opts.LogOf(logs.ComponentCluster).Debug("rank 0 did not receive the reason", "error", err)
	}
}

// Meet performs the rendezvous with the other ranks. It returns an error if the facts of the ranks differ.
func (k *Rank) Meet(ctx context.Context, facts []rendezvous.Fact) error {
	assigned := k.Process.Opts.Assignment
	k.Team = &process.Team{Place: assigned}
	options, err := k.meeting()
	if err != nil {
		return err
	}
	k.Team.Token = options.Token
	if options.Listener, err = supervisor.Listener(k.Process.Opts.Env.Environ); err != nil {
		return err
	}
	options.Facts, options.Status = facts, k.Team.Position
	options.Log.Info("waiting for the other ranks", "rank", assigned.Rank, "of", assigned.WorldSize, "meeting_at",
		assigned.Master())
	if k.Team.Group, err = rendezvous.Join(ctx, options); err != nil {
		return err
	}
	k.Process.Later(k.Team.Group.Close)
	if err := k.Team.Locate(ctx); err != nil {
		return err
	}
	if err := process.CheckFilesOf(k.Process.Cfg, k.Process.Opts, k.Team.Hosts()); err != nil {
		return err
	}
	if k.Device == nil { // the command computes nothing
		return nil
	}
	return k.refuseSharing(ctx)
}
