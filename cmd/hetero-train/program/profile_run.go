package program

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
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
	job   *Rank
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
	j := p.job
	if err := j.openDevice(ctx); err != nil {
		return err
	}
	if info := j.device.Info(); info.Modelled {
		return exit.Usagef("profile: device %s computes nothing, so there is nothing to measure", info.Name)
	}
	if j.opts.place.WorldSize > 1 {
		quick := fmt.Sprintf("quick %v, model %q", p.flags.quick, p.model)
		if err := j.meet(ctx, []rendezvous.Fact{{Name: "program", Value: version.Text()}, {Name: "profile", Value: quick}}); err != nil {
			return err
		}
	}
	if err := j.settlePrecision(ctx, nil); err != nil {
		return err
	}
	p.deadline = time.Now().Add(p.budget.limit)
	if j.team.leads() { // now, not after all has been measured for nothing
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
	j := p.job
	if p.host, err = system.Detect(); err != nil {
		j.opts.log.Warn("profile: this machine does not tell everything", "error", err)
	}
	p.gpus = hardware.Open()
	for _, g := range p.gpus.All() {
		j.opts.log.Info("GPU found", "index", g.Index, "name", g.Name, "memory_mb", g.MemoryBytes>>20, "architecture", g.Architecture, "driver", g.Driver)
	}
	for _, w := range p.gpus.Warnings() {
		j.opts.log.Warn(w)
	}
	if why := p.gpus.Reason(); why != "" {
		j.opts.log.Info("no GPU found", "why", why)
	}
	p.report.Rank = j.describe(p.host, p.gpus)
	if j.team != nil {
		p.report.HostID = j.team.group.Members()[j.opts.place.Rank].Host
	}
	return nil
}

// describe is this rank without its measurements.
func (j *Rank) describe(host system.Host, gpus *hardware.GPUs) profiles.Rank {
	info, place := j.device.Info(), j.opts.place
	gpu := knownCard(info, gpus)
	identity := hardware.Identify(info, host, gpu)
	if factor := j.opts.lab.place.Slowdown; factor > 1 { // simulated: another type of device, as far as speed goes
		identity.Type += fmt.Sprintf(" slowed x%.3g", factor)
	}
	r := profiles.Rank{Rank: place.Rank, LocalRank: max(place.LocalRank, 0), Host: host.Name, GPU: gpu,
		Fingerprint: identity.Fingerprint, DeviceType: identity.Type, MemoryBytes: j.memoryBytes(),
		Device: profiles.Device{Name: info.Name, Kind: info.Kind, Vendor: hardware.CPU, Model: info.Model, ISA: info.ISA, Threads: info.Threads}}
	if gpu != nil {
		r.Device.Vendor = gpu.Vendor
	} else {
		r.Device.CPUs = min(host.CPU.Quota, float64(max(info.Threads, 1)))
	}
	if j.team != nil {
		r.LocalRank = j.team.group.Members()[place.Rank].LocalRank
	}
	r.Measured.DType = j.precision.String()
	return r
}

// describeItself is this rank as a run knows it.
func (j *Rank) describeItself() profiles.Rank {
	host, err := system.Detect()
	if err != nil {
		j.opts.log.Debug("this machine does not tell everything", "error", err)
	}
	gpus := hardware.None("not asked for")
	if j.device.Info().Kind == "cuda" {
		gpus = hardware.Open()
		defer gpus.Close()
	}
	return j.describe(host, gpus)
}

// knownCard is the GPU behind a device, nil for a device that is none. Where NVML does not know it, as in a container without the driver's tools, it is what CUDA
// tells of it.
func knownCard(info device.Info, gpus *hardware.GPUs) *hardware.GPU {
	gpu, err := cardOf(info, gpus)
	if err != nil {
		gpu = &hardware.GPU{Name: info.Model, Vendor: hardware.Nvidia, MemoryBytes: info.MemoryBytes, BusID: info.BusID, MIG: strings.HasPrefix(info.UUID, "MIG-")}
	}
	if gpu != nil {
		gpu.UUID = info.UUID // of the slice, where it is one
	}
	return gpu
}

// cardOf is the GPU behind a device, nil for a device that is none.
func cardOf(info device.Info, gpus *hardware.GPUs) (*hardware.GPU, error) {
	if info.Kind != "cuda" {
		return nil, nil
	}
	gpu, err := gpus.At(info.BusID)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", info.Name, err)
	}
	return &gpu, nil
}

// part does one measurement, unless the time is over, and notes what was left out, and why, in skipped.
func (p *profiling) part(name string, skipped *[]string, do func() error) error {
	err := error(nil)
	if time.Now().After(p.deadline) {
		err = fmt.Errorf("the %v of the whole profile are over", p.budget.limit)
	} else {
		p.job.opts.log.Info("measuring", "what", name)
		err = do()
	}
	if err != nil {
		*skipped = append(*skipped, fmt.Sprintf("%s: %v", name, err))
	}
	return err
}

// measureDevice measures what the score needs, which must succeed, and what it does not.
func (p *profiling) measureDevice(ctx context.Context) error {
	j, r := p.job, &p.report.Rank
	if err := p.part("matrix products and memory bandwidth, in turns", new([]string), func() error { return p.measureScore(ctx) }); err != nil {
		return err
	}
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		if dt == j.precision || dt == tensor.BF16 && !j.device.Info().FastBF16 {
			continue // measured already, or slower than f32: no figure of use
		}
		var got measure.Compute
		err := p.part("matrix products "+dt.String(), new([]string), func() (err error) {
			got, err = measure.Products(ctx, j.device, dt, p.budget.products)
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
			peaks, err := measure.Memory(ctx, j.device, p.budget.memory)
			r.Measured.Memory.Read, r.Measured.Memory.Write = peaks.Read, peaks.Write
			return err
		})
	}
	_ = p.part("host-device copies", &r.Skipped, func() (err error) { // noted as skipped
		r.Measured.Copies, err = measure.HostDevice(ctx, j.device, p.budget.copies)
		return err
	})
	if p.model != "" && p.budget.model > 0 && time.Until(p.deadline) > p.budget.model {
		_ = p.part("operations of "+p.model, &r.Skipped, func() (err error) { // likewise
			p.report.MemoryShare, p.report.PerSample, err = p.job.profileModel(ctx, float64(r.Measured.TFLOPS), float64(r.Measured.Memory.Copy))
			return err
		})
	}
	return ctx.Err()
}

// measureScore measures what the compute score needs, in turns with the other ranks of the machine.
func (p *profiling) measureScore(ctx context.Context) (err error) {
	j, r, b := p.job, &p.report.Rank, &p.budget
	speed, err := measure.OpenSpeed(ctx, j.device, measure.SpeedOptions{DType: j.precision, CPUs: j.clockCPUs(r.Device.CPUs), TensorBytes: tensorBytes(j.device.Info(), 0)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, speed.Close()) }()
	if err := p.together(ctx, "prepared"); err != nil { // preparing disturbs
		return err
	}
	t := turns{count: 1}
	if j.team != nil {
		all := make([]int, j.opts.place.WorldSize)
		for rank := range all {
			all[rank] = rank
		}
		t = turnsOf(j.team.group.Members(), all, j.opts.place.Rank)
	}
	slice := min(b.slice, b.score/time.Duration(t.count*b.rounds))
	if err := t.take(ctx, j.team, speed, b.rounds, slice, time.Now().Add(b.score)); err != nil {
		return err
	}
	var product measure.Compute
	product, r.Measured.Memory = speed.Result()
	r.Measured.TFLOPS, r.Measured.All = product.TFLOPS, []measure.Compute{product}
	return nil
}

// leadsHost reports whether this is the first rank of its machine.
func (p *profiling) leadsHost() bool {
	t := p.job.team
	if t == nil {
		return true
	}
	for _, m := range t.group.Members() {
		if m.Host == p.report.HostID {
			return m.Rank == t.place.Rank
		}
	}
	return true
}

// measureHost measures what the ranks of a machine share.
func (p *profiling) measureHost(ctx context.Context) {
	h := profiles.Describe(p.host, p.gpus.All(), p.gpus.Reason())
	skipped := &p.report.Rank.Skipped
	_ = p.part("memory of the host", skipped, func() error { // what fails here is noted as skipped
		triad, err := measure.Triad(ctx, usableCPUs(), p.budget.triad)
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
	if p.job.team == nil {
		return nil
	}
	return p.job.team.group.Barrier(ctx, "profile: "+name)
}

// measureRanks measures what is between the ranks. All of them do the same: the one with the least time left decides what is left out.
func (p *profiling) measureRanks(ctx context.Context) error {
	j := p.job
	if j.team == nil {
		return nil
	}
	left, err := p.leastLeft(ctx)
	if err != nil {
		return err
	}
	if left == 0 {
		p.report.Skipped = append(p.report.Skipped, fmt.Sprintf("links and all-reduce: the %v of the whole profile are over", p.budget.limit))
		return nil
	}
	host, err := j.team.ownAddress()
	if err != nil {
		return err
	}
	j.opts.log.Info("measuring", "what", "links between ranks")
	p.report.Links, err = measure.Links(ctx, j.team.group, measure.LinkOptions{Host: host, Budget: min(p.budget.links, left/2)})
	if err != nil {
		return err
	}
	x, err := j.agreeOnExchange(ctx)
	if err != nil {
		return err
	}
	comm, err := x.open(ctx, "profile", 0)
	if err != nil {
		return err
	}
	if left, err = p.leastLeft(ctx); err != nil {
		return err
	}
	j.opts.log.Info("measuring", "what", "all-reduce")
	p.report.AllReduce, err = measure.AllReduce(ctx, j.team.group, comm, j.device.Alloc, min(p.budget.allReduce, left/2), nil)
	return err
}

// leastLeft is the least time that any rank has left.
func (p *profiling) leastLeft(ctx context.Context) (time.Duration, error) {
	own := binary.LittleEndian.AppendUint64(nil, uint64(max(time.Until(p.deadline), 0)))
	words, err := p.job.team.group.Gather(ctx, "profile: time left", own)
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
	t := p.job.team
	if t != nil {
		word, err := json.Marshal(p.report)
		if err != nil {
			return err
		}
		words, err := t.group.Gather(ctx, "profile: reports", word)
		if err != nil {
			return err
		}
		reports = make([]rankReport, len(words))
		for rank, w := range words {
			if err := json.Unmarshal(w, &reports[rank]); err != nil {
				return fmt.Errorf("profile, as rank %d tells: %w", rank, err)
			}
		}
	}
	if t.leads() {
		if err := p.publish(reports); err != nil {
			return err // and the abort tells the others
		}
	}
	return p.together(ctx, "written")
}
