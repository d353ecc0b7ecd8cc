package profile

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exchange"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
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

// profileBudget is how long each part may take. The parts together are well below the limit, after which nothing new begins: products, copies and
// sums may overrun their part by a pass on a slow device.
type profileBudget struct {
	limit     time.Duration // of all, from when the ranks have met
	score     time.Duration // of what the score needs, of all ranks of a machine together
	rounds    int           // of turns in it
	slice     time.Duration // of a turn, at most
	products  time.Duration // of each other element type
	memory    time.Duration // reading and writing
	copies    time.Duration
	triad     time.Duration
	disk      time.Duration
	diskBytes int64
	links     time.Duration
	allReduce time.Duration
	model     time.Duration // that must be left for it to begin
}

var (
	fullBudget = profileBudget{limit: 55 * time.Second, score: 9 * time.Second, rounds: 7, slice: 500 * time.Millisecond, products: 2 * time.Second, memory: 3 * time.Second, copies: 2 * time.Second,
		triad: time.Second, disk: 6 * time.Second, diskBytes: 512 << 20, links: 8 * time.Second, allReduce: 8 * time.Second, model: 20 * time.Second}
	quickBudget = profileBudget{limit: 9 * time.Second, score: 2500 * time.Millisecond, rounds: 5, slice: 200 * time.Millisecond, products: 400 * time.Millisecond, copies: 300 * time.Millisecond,
		triad: 300 * time.Millisecond, disk: time.Second, diskBytes: 64 << 20, links: 1200 * time.Millisecond, allReduce: 1200 * time.Millisecond}
)

// profiling is one rank that is measured.
type profiling struct {
	flags *profileFlags
	rank  *compute.Rank
	model string // of which the score depends, "" = none

	budget   profileBudget
	deadline time.Time
	host     system.Host
	gpus     *hardware.GPUs
	report   rankReport
}

// rankReport is what a rank tells rank 0.
type rankReport struct {
	Rank        profiles.Rank
	Host        *profiles.Host // of the first rank of a machine
	HostID      string
	MemoryShare float64 // of the model's step that is bound by memory; 0 = not known
	PerSample   float64 // seconds of the model's step, measured; 0 = not known
	Links       []measure.Link
	AllReduce   []measure.AllReduced
	Skipped     []string // of what all ranks do together
}

// run finds, measures, and on rank 0 puts together, writes and shows.
func (p *profiling) run(ctx context.Context) error {
	p.budget = fullBudget
	if p.flags.quick {
		p.budget = quickBudget
	}
	j := p.rank
	if err := j.OpenDevice(ctx); err != nil {
		return err
	}
	if info := j.Device.Info(); info.Modelled {
		return exit.Usagef("profile: device %s does not compute, so it cannot be measured", info.Name)
	}
	if j.Opts.Place.WorldSize > 1 {
		quick := fmt.Sprintf("quick %v, model %q", p.flags.quick, p.model)
		if err := j.Meet(ctx, []rendezvous.Fact{{Name: "program", Value: version.Text()}, {Name: "profile", Value: quick}}); err != nil {
			return err
		}
	}
	if err := j.SettlePrecision(ctx, nil); err != nil {
		return err
	}
	p.deadline = time.Now().Add(p.budget.limit)
	if j.Team.Leads() { // now, not after all has been measured for nothing
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
	if err := p.together(ctx, "devices"); err != nil { // what follows would disturb ranks that still compute
		return err
	}
	if p.leadsHost() {
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

// find describes the host and the rank's device.
func (p *profiling) find() (err error) {
	j := p.rank
	if p.host, err = system.Detect(); err != nil {
		j.Opts.Log.Warn("profile: some properties of this machine are unknown", "error", err)
	}
	p.gpus = hardware.Open()
	for _, g := range p.gpus.All() {
		j.Opts.Log.Info("GPU found", "index", g.Index, "name", g.Name, "memory_mb", g.MemoryBytes>>20, "architecture", g.Architecture, "driver", g.Driver)
	}
	for _, w := range p.gpus.Warnings() {
		j.Opts.Log.Warn(w)
	}
	if why := p.gpus.Reason(); why != "" {
		j.Opts.Log.Info("no GPU found", "why", why)
	}
	p.report.Rank = j.Describe(p.host, p.gpus)
	if j.Team != nil {
		p.report.HostID = j.Team.Group.Members()[j.Opts.Place.Rank].Host
	}
	return nil
}

// part does one measurement, unless the time is over, and notes what was left out, and why, in skipped.
func (p *profiling) part(name string, skipped *[]string, do func() error) error {
	err := error(nil)
	if time.Now().After(p.deadline) {
		err = fmt.Errorf("the time budget of the whole profile, %v, is used up", p.budget.limit)
	} else {
		p.rank.Opts.Log.Info("measuring", "what", name)
		err = do()
	}
	if err != nil {
		*skipped = append(*skipped, fmt.Sprintf("%s: %v", name, err))
	}
	return err
}

// measureDevice measures what the score needs, which must succeed, and what it does not.
func (p *profiling) measureDevice(ctx context.Context) error {
	j, r := p.rank, &p.report.Rank
	if err := p.part("matrix products and memory bandwidth, in turns", new([]string), func() error { return p.measureScore(ctx) }); err != nil {
		return err
	}
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if dt == j.Precision || dt == tensor.BF16 && !j.Device.Info().FastBF16 {
			continue // measured already, or slower than f32: no figure of use
		}
		var got measure.Compute
		err := p.part("matrix products "+dt.String(), new([]string), func() (err error) {
			got, err = measure.Products(ctx, j.Device, dt, p.budget.products)
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
	if d := r.Device; p.budget.memory > 0 && (d.CPUs == 0 || d.CPUs >= float64(d.Threads)) { // under a quota the best of short passes is not sustained
		_ = p.part("reading and writing memory", &r.Skipped, func() error { // noted as skipped
			peaks, err := measure.Memory(ctx, j.Device, p.budget.memory)
			r.Measured.Memory.Read, r.Measured.Memory.Write = peaks.Read, peaks.Write
			return err
		})
	}
	_ = p.part("host-device copies", &r.Skipped, func() (err error) { // noted as skipped
		r.Measured.Copies, err = measure.HostDevice(ctx, j.Device, p.budget.copies)
		return err
	})
	if p.model != "" && p.budget.model > 0 && time.Until(p.deadline) > p.budget.model {
		_ = p.part("operations of "+p.model, &r.Skipped, func() (err error) { // likewise
			p.report.MemoryShare, p.report.PerSample, err = profileModel(ctx, p.rank, float64(r.Measured.TFLOPS), float64(r.Measured.Memory.Copy))
			return err
		})
	}
	return ctx.Err()
}

// measureScore measures what the compute score needs, in turns with the other ranks of the machine.
func (p *profiling) measureScore(ctx context.Context) (err error) {
	j, r, b := p.rank, &p.report.Rank, &p.budget
	speed, err := measure.OpenSpeed(ctx, j.Device, measure.SpeedOptions{DType: j.Precision, CPUs: j.ClockCPUs(r.Device.CPUs), TensorBytes: compute.TensorBytes(j.Device.Info(), 0)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, speed.Close()) }()
	if err := p.together(ctx, "prepared"); err != nil { // preparing disturbs
		return err
	}
	t := compute.Turns{Count: 1}
	if j.Team != nil {
		all := make([]int, j.Opts.Place.WorldSize)
		for rank := range all {
			all[rank] = rank
		}
		t = compute.TurnsOf(j.Team.Group.Members(), all, j.Opts.Place.Rank)
	}
	slice := min(b.slice, b.score/time.Duration(t.Count*b.rounds))
	if err := t.Take(ctx, j.Team, speed, b.rounds, slice, time.Now().Add(b.score)); err != nil {
		return err
	}
	var product measure.Compute
	product, r.Measured.Memory = speed.Result()
	r.Measured.TFLOPS, r.Measured.All = product.TFLOPS, []measure.Compute{product}
	return nil
}

// leadsHost reports whether this is the first rank of its machine.
func (p *profiling) leadsHost() bool {
	t := p.rank.Team
	if t == nil {
		return true
	}
	for _, m := range t.Group.Members() {
		if m.Host == p.report.HostID {
			return m.Rank == t.Place.Rank
		}
	}
	return true
}

// measureHost measures what the ranks of a machine share.
func (p *profiling) measureHost(ctx context.Context) {
	h := profiles.Describe(p.host, p.gpus.All(), p.gpus.Reason())
	skipped := &p.report.Rank.Skipped
	_ = p.part("memory of the host", skipped, func() error { // what fails here is noted as skipped
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

// diskFolder is the folder for results. Other machines than rank 0's take what they have of it.
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

// together waits until all ranks are here.
func (p *profiling) together(ctx context.Context, name string) error {
	if p.rank.Team == nil {
		return nil
	}
	return p.rank.Team.Group.Barrier(ctx, "profile: "+name)
}

// measureRanks measures what is between the ranks. All of them do the same: the one with the least time left decides what is left out.
func (p *profiling) measureRanks(ctx context.Context) error {
	j := p.rank
	if j.Team == nil {
		return nil
	}
	left, err := p.leastLeft(ctx)
	if err != nil {
		return err
	}
	if left == 0 {
		p.report.Skipped = append(p.report.Skipped, fmt.Sprintf("links and all-reduce: the time budget of the whole profile, %v, is used up", p.budget.limit))
		return nil
	}
	host, err := j.Team.OwnAddress()
	if err != nil {
		return err
	}
	j.Opts.Log.Info("measuring", "what", "links between ranks")
	p.report.Links, err = measure.Links(ctx, j.Team.Group, measure.LinkOptions{Host: host, Budget: min(p.budget.links, left/2)})
	if err != nil {
		return err
	}
	x, err := exchange.Agree(ctx, j)
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
	j.Opts.Log.Info("measuring", "what", "all-reduce")
	p.report.AllReduce, err = measure.AllReduce(ctx, j.Team.Group, comm, j.Device.Alloc, min(p.budget.allReduce, left/2), nil)
	return err
}

// leastLeft is the least time that any rank has left.
func (p *profiling) leastLeft(ctx context.Context) (time.Duration, error) {
	own := binary.LittleEndian.AppendUint64(nil, uint64(max(time.Until(p.deadline), 0)))
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

// conclude brings all reports to rank 0, which writes and shows them; the others learn whether it could.
func (p *profiling) conclude(ctx context.Context) error {
	reports := []rankReport{p.report}
	t := p.rank.Team
	if t != nil {
		word, err := json.Marshal(p.report)
		if err != nil {
			return err
		}
		words, err := t.Group.Gather(ctx, "profile: reports", word)
		if err != nil {
			return err
		}
		reports = make([]rankReport, len(words))
		for rank, w := range words {
			if err := json.Unmarshal(w, &reports[rank]); err != nil {
				return fmt.Errorf("profile: rank %d: %w", rank, err)
			}
		}
	}
	if t.Leads() {
		if err := p.publish(reports); err != nil {
			return err // and the abort tells the others
		}
	}
	return p.together(ctx, "written")
}
