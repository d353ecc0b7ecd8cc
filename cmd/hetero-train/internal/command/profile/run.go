package profile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exchange"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/profiles"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// run detects and measures the hardware. On rank 0, it also merges the reports, writes the files and prints the tables.
func (p *profiling) run(ctx context.Context) error {
	p.budget = fullBudget
	if p.flags.quick {
		p.budget = quickBudget
	}
	k := p.rank
	if err := k.OpenDevice(ctx); err != nil {
		return err
	}
	if info := k.Device.Info(); info.Modelled {
		return exit.Usagef("profile: device %s is simulated and computes no values, so it cannot be measured",
			info.Name)
	}
	if k.Process.Opts.Assignment.WorldSize > 1 {
		quick := fmt.Sprintf("quick %v, model %q", p.flags.quick, p.model)
		if err := k.Meet(ctx, []rendezvous.Fact{{Name: "program", Value: version.Source()},
			{Name: "profile", Value: quick}}); err != nil {
			return err
		}
	}
	if err := k.SettlePrecision(ctx, nil); err != nil {
		return err
	}
	p.deadline = time.Now().Add(p.budget.limit)
	if k.Team.Leads() { // check the folder first: a later error would make the measurements useless
		if err := os.MkdirAll(p.folder(), 0o755); err != nil {
			return exit.With(exit.FolderCode(err), fmt.Errorf("profile: folder for the results: %w", err))
		}
	}
	if err := p.find(); err != nil {
		return err
	}
	defer p.gpus.Close()
	if err := p.measureDevice(ctx); err != nil {
		return err
	}
	if err := p.together(ctx, "devices"); err != nil { // wait for ranks that still compute
		return err
	}
	if k.LeadsHost() {
		p.measureHost(ctx)
	}
	if err := p.together(ctx, "hosts"); err != nil {
		return err
	}
	if err := p.measureRanks(ctx); err != nil {
		return err
	}
	return p.conclude(ctx)
}

// find detects the properties of the machine and of the rank's device.
func (p *profiling) find() (err error) {
	k := p.rank
	if p.host, err = system.Detect(); err != nil {
		k.Process.Opts.Log.Warn("profile: some properties of this machine are unknown", "error", err)
	}
	p.gpus = hardware.Open()
	for _, g := range p.gpus.All() {
		k.Process.Opts.Log.Info("GPU found", "index", g.Index, "name", g.Name, "memory_mb", g.MemoryBytes>>20,
			"architecture", g.Architecture, "driver", g.Driver)
	}
	for _, w := range p.gpus.Warnings() {
		k.Process.Opts.Log.Warn(w)
	}
	if why := p.gpus.Reason(); why != "" {
		k.Process.Opts.Log.Info("no GPU found", "why", why)
	}
	p.report.Rank = k.Describe(p.host, p.gpus)
	if k.Team != nil {
		p.report.HostID = k.Team.Group.Members()[k.Process.Opts.Assignment.Rank].Host
	}
	return nil
}

// part performs one measurement if time is left. If it skips the measurement, or the measurement fails, part adds the
// name and the reason to skipped.
func (p *profiling) part(name string, skipped *[]string, do func() error) error {
	err := error(nil)
	if time.Now().After(p.deadline) {
		err = fmt.Errorf("the time limit of the whole profile (%v) is reached", p.budget.limit)
	} else {
		p.rank.Process.Opts.Log.Info("measuring", "what", name)
		err = do()
	}
	if err != nil {
		*skipped = append(*skipped, fmt.Sprintf("%s: %v", name, err))
	}
	return err
}

// measureDevice measures what the score needs, and then more properties of the device. It returns an error only if a
// measurement for the score fails.
func (p *profiling) measureDevice(ctx context.Context) error {
	k, r := p.rank, &p.report.Rank
	if err := p.part("matrix products and memory bandwidth, in turns", new([]string),
		func() error { return p.measureScore(ctx) }); err != nil {
		return err
	}
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if dt == k.Precision || dt == tensor.BF16 && !k.Device.Info().FastBF16 {
			continue // this type was already measured, or is slower than f32 and therefore useless
		}
		var got measure.Compute
		err := p.part("matrix products "+dt.String(), new([]string), func() (err error) {
			got, err = measure.Products(ctx, k.Device, dt, p.budget.products)
			return err
		})
		switch {
		case err == nil:
			r.Measured.All = append(r.Measured.All, got)
		case errors.Is(err, device.ErrUnsupported):
		case ctx.Err() != nil:
			return err
		default:
			r.Skipped = append(r.Skipped, err.Error())
		}
	}
	// Skip this with a CPU quota: the best of several short passes would exceed the sustained bandwidth.
	if d := r.Device; p.budget.memory > 0 && (d.CPUs == 0 || d.CPUs >= float64(d.Threads)) {
		// p.part has recorded the failure in the report
		_ = p.part("reading and writing memory", &r.Skipped, func() error {
			peaks, err := measure.Memory(ctx, k.Device, p.budget.memory)
			r.Measured.Memory.Read, r.Measured.Memory.Write = peaks.Read, peaks.Write
			return err
		})
	}
	_ = p.part("host-device copies", &r.Skipped, func() (err error) { // p.part has recorded the failure in the report
		r.Measured.Copies, err = measure.HostDevice(ctx, k.Device, p.budget.copies)
		return err
	})
	if p.model != "" && p.budget.model > 0 {
		if err := p.measureModel(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// measureModel measures steps of the configured model if all ranks have time left. Each rank measures steps with a few
// samples. With several ranks, each rank then measures steps with several shares.
func (p *profiling) measureModel(ctx context.Context) error {
	left, err := p.leastLeft(ctx)
	if err != nil {
		return err
	}
	skipped := &p.report.Rank.Skipped
	if left < p.budget.model {
		*skipped = append(*skipped,
			fmt.Sprintf("steps of %s: %v of the time limit of the whole profile (%v) are left, want %v", p.model, left,
				p.budget.limit, p.budget.model))
		return nil
	}
	most := 0
	// p.part has recorded the failure in the report
	_ = p.part("operations of "+p.model, skipped, func() (err error) {
		most, err = p.profileModel(ctx)
		return err
	})
	if p.rank.Team == nil {
		return nil
	}
	expected, err := p.expectedShare(ctx)
	if err != nil {
		return err
	}
	if expected == 0 || most == 0 {
		*skipped = append(*skipped,
			fmt.Sprintf(
				"steps of %s at several shares: a rank has no time per sample, or no sample fits into its memory",
				p.model))
		return nil
	}
	// p.part has recorded the failure in the report
	_ = p.part("steps of "+p.model+" at several shares", skipped, func() error {
		return p.profileShares(ctx, expected, most)
	})
	return nil
}

// measureScore performs the measurements for the compute score. The ranks of a machine measure one after another.
func (p *profiling) measureScore(ctx context.Context) (err error) {
	k, r, b := p.rank, &p.report.Rank, &p.budget
	speed, err := measure.OpenSpeed(ctx, k.Device, measure.SpeedOptions{
		DType: k.Precision, CPUs: k.ClockCPUs(r.Device.CPUs), TensorBytes: compute.TensorBytes(k.Device.Info(), 0)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, speed.Close()) }()
	// Wait for all ranks: a rank that still prepares would disturb the measurement of another rank.
	if err := p.together(ctx, "prepared"); err != nil {
		return err
	}
	t := compute.Turns{Count: 1}
	if k.Team != nil {
		all := make([]int, k.Process.Opts.Assignment.WorldSize)
		for rank := range all {
			all[rank] = rank
		}
		t = compute.TurnsOf(k.Team.Group.Members(), all, k.Process.Opts.Assignment.Rank)
	}
	slice := min(b.slice, b.score/time.Duration(t.Count*b.rounds))
	if err := t.Take(ctx, k.Team, speed, b.rounds, slice, time.Now().Add(b.score)); err != nil {
		return err
	}
	var product measure.Compute
	product, r.Measured.Memory = speed.Result()
	r.Measured.TFLOPS, r.Measured.All = product.TFLOPS, []measure.Compute{product}
	return nil
}

// measureHost measures the resources that the ranks of a machine share.
func (p *profiling) measureHost(ctx context.Context) {
	h := profiles.Describe(p.host, p.gpus.All(), p.gpus.Reason())
	skipped := &p.report.Rank.Skipped
	_ = p.part("memory of the host", skipped, func() error { // p.part has recorded the failure in the report
		triad, err := measure.Triad(ctx, session.UsableCPUs(), p.budget.triad)
		h.TriadGBytes = measure.Figure(triad)
		return err
	})
	_ = p.part("disk", skipped, func() error {
		folder, err := p.diskFolder()
		if err != nil {
			return err
		}
		speed, err := measure.Disk(ctx, folder, p.budget.diskBytes, p.budget.disk)
		if err != nil {
			return err
		}
		h.Output = &profiles.Output{Folder: folder, DiskSpeed: speed}
		return nil
	})
	p.report.Host = &h
}

// diskFolder returns the folder of the profiles. On machines without rank 0, this folder may not exist. diskFolder then
// returns the nearest existing parent.
func (p *profiling) diskFolder() (string, error) {
	folder, err := filepath.Abs(p.folder())
	if err != nil {
		return "", err
	}
	for {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return folder, nil
		}
		if filepath.Dir(folder) == folder {
			return "", fmt.Errorf("there is no folder %s", p.folder())
		}
		folder = filepath.Dir(folder)
	}
}

// together waits until all ranks have reached this call.
func (p *profiling) together(ctx context.Context, name string) error {
	if p.rank.Team == nil {
		return nil
	}
	return p.rank.Team.Group.Barrier(ctx, "profile: "+name)
}

// measureRanks measures the communication between ranks. All ranks perform the same measurements. The rank with the
// least remaining time determines which measurements are skipped.
func (p *profiling) measureRanks(ctx context.Context) error {
	k := p.rank
	if k.Team == nil {
		return nil
	}
	left, err := p.leastLeft(ctx)
	if err != nil {
		return err
	}
	if left == 0 {
		p.report.Skipped = append(p.report.Skipped,
			fmt.Sprintf("links and all-reduce: the time limit of the whole profile (%v) is reached", p.budget.limit))
		return nil
	}
	k.Process.Opts.Log.Info("measuring", "what", "links between ranks")
	p.report.Links, err = measure.Links(ctx, k.Team.Group,
		measure.LinkOptions{Host: k.Team.OwnAddress(), Ports: k.Ports(),
			Budget: min(p.budget.links, left/2)})
	if err != nil {
		return err
	}
	x, err := exchange.Agree(ctx, k)
	if err != nil {
		return err
	}
	comm, err := x.Open(ctx, "profile", 0)
	if err != nil {
		return err
	}
	if left, err = p.leastLeft(ctx); err != nil {
		return err
	}
	k.Process.Opts.Log.Info("measuring", "what", "all-reduce")
	p.report.AllReduce, err = measure.AllReduce(ctx, k.Team.Group, comm, k.Device.Alloc,
		min(p.budget.allReduce, left/2), nil)
	return err
}

// leastLeft returns the minimum of the remaining time over all ranks.
func (p *profiling) leastLeft(ctx context.Context) (time.Duration, error) {
	left := max(time.Until(p.deadline), 0)
	if p.rank.Team == nil {
		return left, nil
	}
	own := binary.LittleEndian.AppendUint64(nil, uint64(left))
	words, err := p.rank.Team.Group.Gather(ctx, "profile: time left", own)
	if err != nil {
		return 0, err
	}
	least := p.budget.limit
	for rank, w := range words {
		if len(w) != 8 {
			return 0, fmt.Errorf("profile: time left of rank %d: got %d bytes, want 8", rank, len(w))
		}
		least = min(least, time.Duration(binary.LittleEndian.Uint64(w)))
	}
	return least, nil
}

// conclude sends all reports to rank 0, which writes the files and prints the tables. If that fails, the other ranks
// receive the error.
func (p *profiling) conclude(ctx context.Context) error {
	reports, err := process.GatherAll(ctx, p.rank.Team, "profile: reports", "profile: rank", p.report)
	if err != nil {
		return err
	}
	if p.rank.Team.Leads() {
		if err := p.publish(reports); err != nil {
			return err // the later abort sends the error to the other ranks
		}
	}
	return p.together(ctx, "written")
}
