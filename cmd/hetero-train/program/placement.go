package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
)

// placement says which of a machine's devices of one kind a process opens, and how.
type placement struct {
	index     int // device.index, -1: by the rank's number on its machine
	localRank int // -1: not known
	share     bool
	threads   int
	log       *slog.Logger
}

// alone is the placement of a process that is no rank of several.
func alone(threads int) placement {
	return placement{index: -1, threads: threads, log: slog.New(slog.DiscardHandler)}
}

// open opens the device that d has for p.
func (p placement) open(d device.Driver) (device.Device, error) {
	index, err := 0, error(nil)
	if all, ok := d.(device.Counter); ok {
		count, err := all.Count()
		if err != nil {
			return nil, err
		}
		if index, err = p.pick(d.Kind(), count); err != nil {
			return nil, err
		}
	} else if p.index > 0 {
		return nil, exit.Usagef("device.index: got %d, but there is one device %s on a machine", p.index, d.Kind())
	}
	if d.Kind() == "cpu" && p.threads == 0 { // what the user set wrongly is no reason to look at other devices
		if _, err := cpu.ThreadLimit(os.LookupEnv); err != nil {
			return nil, exit.With(exit.Usage, err)
		}
	}
	dev, err := d.Open(index, device.Options{Threads: p.threads})
	if err != nil && !errors.Is(err, device.ErrUnavailable) {
		err = exit.With(exit.Device, err)
	}
	return dev, err
}

// pick chooses one of count devices. A single one is for every rank: launchers show each rank its own, and who shares one is found out when ranks meet.
func (p placement) pick(kind string, count int) (int, error) {
	switch {
	case p.index >= count:
		return 0, exit.Usagef("device.index: got %d, want one of the %d devices %s that this process sees, from 0", p.index, count, kind)
	case p.index >= 0:
		return p.index, nil
	case count == 1:
		return 0, nil
	case p.localRank < 0:
		return 0, exit.Usagef("which of %d devices %s this rank takes is not known, since the launcher does not say which rank of its machine it is: set device.index, or show each rank one", count, kind)
	case p.localRank < count || p.share:
		return p.localRank % count, nil
	}
	return 0, exit.Usagef("rank %d of this machine has no device %s of its own: there are %d; start at most as many ranks (parallel.ranks), or set device.share_gpu = true", p.localRank, kind, count)
}

// openDevice opens the device that the configuration asks for. "auto" never ends at a device that is slow by design:
// a missing native library is an error that says how to build it.
func openDevice(kind string, p placement) (device.Device, error) {
	var reasons []error
	for _, d := range drivers {
		if d.Kind() != kind && !(kind == "auto" && d.automatic) {
			continue
		}
		dev, err := p.open(d.Driver)
		if err == nil {
			for _, why := range reasons {
				p.passedOver(why)
			}
			return dev, nil
		}
		if !errors.Is(err, device.ErrUnavailable) { // it is there, and fails: to go on without it would be no service
			return nil, err
		}
		if !strings.Contains(err.Error(), d.Kind()+":") { // else it says which
			err = fmt.Errorf("device %s: %w", d.Kind(), err)
		}
		reasons = append(reasons, err)
	}
	if len(reasons) == 0 {
		names := []string{"auto"}
		for _, d := range drivers {
			names = append(names, d.Kind())
		}
		return nil, exit.Usagef("device: got %q, want %s", kind, strings.Join(names, ", "))
	}
	err := errors.Join(reasons...)
	if kind != (cuda.Driver{}).Kind() {
		err = fmt.Errorf("%w; device.kind = \"reference\" works everywhere, but is about a thousand times slower", err)
	}
	return nil, exit.With(exit.Usage, err)
}

// passedOver says why "auto" did not take a device. What is to be mended is a warning, of one rank of a machine.
func (p placement) passedOver(why error) {
	var absent device.AbsentError
	switch {
	case errors.Is(why, cuda.ErrNotBuilt):
		p.log.Debug(why.Error())
	case errors.As(why, &absent):
		p.log.Info(absent.Error())
	case p.localRank > 0:
		p.log.Info("device.kind = \"auto\" leaves out a device", "reason", why)
	default:
		p.log.Warn("device.kind = \"auto\" leaves out a device", "reason", why)
	}
}

// localDevices is the default number of ranks of a machine: one for each device of the kind that they will open, plus
// parallel.cpu_ranks.
func localDevices(cfg *config.Config, lookup func(string) (string, bool)) int {
	return max(localGPUs(cfg.Device, lookup)+cfg.Parallel.CPURanks, 1)
}

// localGPUs is how many ranks of a machine compute on its GPUs, 0 where none does.
func localGPUs(c config.Device, lookup func(string) (string, bool)) int {
	slices := cuda.ReadVisible(lookup(cuda.VisibleVariable)).Slices()
	for _, d := range drivers {
		all, ok := d.Driver.(device.Counter)
		if !ok || d.Kind() != c.Kind && !(c.Kind == "auto" && d.automatic) {
			continue
		}
		n, err := all.Count()
		switch {
		case err != nil:
		case c.Index >= 0:
			return 1
		default:
			return max(n, slices) // of slices a process sees one
		}
	}
	return 0
}

// isCPURank reports whether this is one of the last ranks of its machine, which parallel.cpu_ranks puts on the CPU.
func (j *Session) isCPURank() (bool, error) {
	n, place := j.cfg.Parallel.CPURanks, j.opts.place
	if n == 0 || place.WorldSize <= 1 {
		return false, nil
	}
	if place.LocalRank < 0 || place.LocalWorldSize == 0 {
		return false, exit.Usagef("parallel.cpu_ranks: got %d, but the launcher does not say which rank of its machine this is, and of how many: set LOCAL_RANK and LOCAL_WORLD_SIZE, or device.kind for each rank", n)
	}
	return place.LocalRank >= place.LocalWorldSize-n, nil
}

// seat is what a rank tells the others of the device it computes on.
type seat struct {
	Device string `json:"device"`
	UUID   string `json:"uuid"` // "" for a device that processes cannot meet on
	Shared bool   `json:"shared"`
}

// refuseSharing makes sure that no two ranks compute on one GPU unless both are told to. Each would have half of its memory, and both
// half of its speed at best.
func (j *Rank) refuseSharing(ctx context.Context) error {
	info, members := j.device.Info(), j.team.group.Members()
	own, err := json.Marshal(seat{info.Name, info.UUID, j.cfg.Device.ShareGPU})
	if err != nil {
		return err
	}
	words, err := j.team.group.Gather(ctx, "device", own)
	if err != nil {
		return err
	}
	first := map[string]int{}
	seats := make([]seat, len(words))
	for rank, word := range words {
		if err := json.Unmarshal(word, &seats[rank]); err != nil {
			return fmt.Errorf("device of rank %d: %w", rank, err)
		}
		s := seats[rank]
		if s.UUID == "" {
			continue
		}
		if s.UUID == info.UUID {
			j.sharers++
		}
		other, taken := first[s.UUID]
		if !taken {
			first[s.UUID] = rank
			continue
		}
		if !s.Shared || !seats[other].Shared {
			return exit.Usagef("ranks %d (process %d) and %d (process %d) of %s would compute on one GPU, %s (%s): start one rank for each GPU (parallel.ranks, device.index, CUDA_VISIBLE_DEVICES), or set device.share_gpu = true",
				other, members[other].PID, rank, members[rank].PID, members[rank].Name, s.UUID, strings.Join([]string{seats[other].Device, s.Device}, " and "))
		}
	}
	return nil
}
