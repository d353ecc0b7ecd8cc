package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device/dry"
	"github.com/hetero-train/hetero-train/engine/device/gpumodel"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

const planLong = `Compute what a run costs, without running it: parameters, operations per step, and memory by purpose and micro-batch size.
The command also finds the largest micro-batch that fits into memory.

The memory of the device is exact, because the command chooses kernels and places tensors as training does. The memory of the
process is measured in this command where it does not follow from the settings: the program, its libraries and Go's runtime. The
limit is that of this machine: control groups, ulimit, and available memory, divided by the ranks.

The command opens the data set only if it needs no files, for a language model, and to count the classes of the data sets images
and webdataset if model.num_classes is 0.

With several ranks (--nproc-per-node or balance.fixed_shares), the output has one line for each distinct micro-batch size among the
ranks. The command assumes that all ranks have the device type of this machine. --memory sets another memory size: 8GiB, 80GB,
512MiB. It is the memory of a GPU; for a CPU, it is that of the process.

With --device-model, the command plans for a GPU that this machine need not have. It predicts the time of each kind of op and of
a step from the GPU's data sheet, without data loading and exchanges between ranks. Efficiencies were measured on one H100 in bf16;
predictions for other GPUs, types, models and batches are extrapolated. The plan does not contain the scratch memory of products
and convolutions.

If not even one sample fits, the command states the memory that one sample needs, and ends with exit code 6.

The last table lists the ports of a run on several machines, for firewalls (docs/security.md).

If the program cannot load native libraries, device.kind = "auto" plans for the reference device, with a warning.`

const planExample = `  hetero-train plan -c configs/resnet50.toml
  hetero-train plan -c configs/resnet50.toml --memory 8GiB --set data.image_size=224
  hetero-train plan --set model.name=resnet101 --set model.num_classes=1000 --samples 1,8,32 --json
  hetero-train plan -c configs/resnet50.toml --nproc-per-node 4
  hetero-train plan --model resnet50 --set model.num_classes=1000 --set data.image_size=224 --device-model h100`

// planFlags are the flags of command plan.
type planFlags struct {
	memory  string
	limited bool // --memory is given
	samples []int
	json    bool
	gpu     string // name of a modelled GPU
	// plan for the modelled GPU, in place of the device of this machine
	modelled bool
}

// New returns the command that estimates the memory and the compute of a training run.
func New(a *cli.App) *cobra.Command {
	f := new(planFlags)
	cmd := &cobra.Command{Use: "plan", Short: "Compute the operations and memory that a run needs, without running it",
		Long: planLong, Example: planExample, Args: cli.NoArguments}
	cmd.Flags().StringVar(&f.memory, "memory", "",
		"memory `SIZE` of the GPU, or of the process of a CPU rank; default: that of this machine")
	cmd.Flags().StringVar(&f.gpu, "device-model", "",
		"plan for this `GPU`, and predict the time of a step: "+strings.Join(gpumodel.Names(), ", "))
	cmd.Flags().IntSliceVar(&f.samples, "samples", nil,
		"micro-batch sizes to plan for; default: powers of two around the configured size")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object on one line of standard output")
	a.AddKeyFlag(cmd, "model", "model.name", "string",
		"name of the model: "+strings.Join(parts.KindNames(a.Env.Catalog.Models), ", "))
	a.AddKeyFlag(cmd, "dataset", "data.dataset", "string",
		"name of the data set: "+strings.Join(parts.KindNames(a.Env.Catalog.DataSets), ", "))
	a.AddKeyFlag(cmd, "device", "device.kind", "string", "device to plan for")
	a.AddKeyFlag(cmd, "precision", "train.precision", "string", "element type of the activations")
	a.AddKeyFlag(cmd, "nproc-per-node", "parallel.ranks", "int", "number of ranks")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.limited, f.modelled = cmd.Flags().Changed("memory"), cmd.Flags().Changed("device-model")
		return exit.Classify(cmd.Context(), estimate(cmd.Context(), a, f))
	}
	return cmd
}

// Report is the output of command plan.
type Report struct {
	Program    string `json:"program"`
	Model      string `json:"model"`
	Parameters int64  `json:"parameters"`
	Classes    int    `json:"classes"`
	ImageSize  int    `json:"image_size"`
	// number of tokens in a sample of text; if it is set, ImageSize and Classes have no meaning
	Tokens      int    `json:"sequence_length,omitempty"`
	Precision   string `json:"precision"`
	Device      string `json:"device"`
	DeviceModel string `json:"device_model"`
	// value of --memory, or memory of the device; for a device that computes in host memory, it is Limit
	MemoryBytes   int64               `json:"memory_bytes"`
	Limit         memory.Limit        `json:"limit"` // memory that the process of a rank may use
	Optimizer     string              `json:"optimizer"`
	BatchSize     int                 `json:"batch_size"` // global batch size
	Accumulation  int                 `json:"grad_accumulation"`
	MicroBatch    int                 `json:"micro_batch"`
	StepFLOPs     int64               `json:"step_flops"` // operations of one optimizer step on all ranks together
	ForwardFLOPs  int64               `json:"forward_flops"`
	BackwardFLOPs int64               `json:"backward_flops"`
	Table         []replica.Footprint `json:"table"` // memory of one rank, by its number of samples
	// largest number of samples of one rank that fits into memory; 0: none fits
	LargestFit int `json:"largest_micro_batch"`
	// refusal states the memory that the smallest micro-batch needs, if LargestFit is 0.
	refusal *replica.MemoryError
	Ranks   []rankPlan `json:"ranks"`
	// Reserved is the memory that each rank reserves in a run of several ranks. It is enough for ReservedFor samples.
	// Within this memory, balancing can change shares without new allocations. With balance.fixed_shares, Reserved is
	// 0.
	Reserved    int64      `json:"reserved_bytes,omitempty"`
	ReservedFor int        `json:"reserved_samples,omitempty"`
	Ports       []listener `json:"ports"` // ports of the run if it uses several machines
	// reason why the plan does not contain the smaller last step of an epoch; "": it contains the step
	LastStep string `json:"last_step_unknown,omitempty"`
	// times on the GPU of --device-model; nil without this flag
	Prediction *prediction `json:"prediction,omitempty"`
}

// rankPlan is the plan of one rank.
type rankPlan struct {
	Rank  int   `json:"rank"`
	Share int   `json:"samples"` // share of a micro-batch in samples
	Bytes int64 `json:"bytes"`   // memory of the device
	// memory of the process, without that of the device; left out with --device-model, because it is unknown
	HostBytes int64 `json:"host_bytes,omitempty"`
	Fits      bool  `json:"fits"`
	StepFL    int64 `json:"step_flops"`
}

// estimate computes the plan of a configuration. It uses a device that allocates no memory.
func estimate(ctx context.Context, a *cli.App, f *planFlags) error {
	if a.File == "" && len(a.Overrides) == 0 {
		return exit.Usagef("plan: got no configuration, want -c FILE, --model NAME, or other settings")
	}
	cfg, err := a.Load()
	if err != nil {
		return err
	}
	var memory int64
	if f.limited {
		if memory, err = parseBytes(f.memory); err != nil {
			return exit.Usagef("--memory: %w", err)
		}
	}
	gpu, err := f.gpuOf(cfg)
	if err != nil {
		return err
	}
	for _, n := range f.samples {
		if n < 1 {
			return exit.Usagef("--samples: got %d, want at least 1", n)
		}
	}
	ranks := max(cfg.Parallel.Ranks, len(cfg.Balance.FixedShares), 1)
	shares, err := parts.Divide(cfg, ranks)
	if err != nil {
		return err
	}
	opts, err := a.Options(discovery.Assignment{WorldSize: 1}, a.Quieter(), "")
	if err != nil {
		return err
	}
	built := assembly.New(cfg, opts)
	defer built.Process.CloseAll()
	p := &planning{run: built, shares: shares, gpu: gpu,
		progress: startProgress("opening the device and the data", a.Progress)}
	r, err := func() (Report, error) {
		defer p.progress.end()
		if err := p.open(ctx, memory); err != nil {
			return Report{}, err
		}
		r, err := p.report(f.samples)
		return r, compute.AdviseLimit(err, cfg.Data.BatchSize/cfg.Train.MicroBatches())
	}()
	if err != nil {
		return err
	}
	if f.json {
		err = show.JSON(a.Env.Stdout, r)
	} else {
		err = r.write(a.Env.Stdout)
	}
	if err == nil && r.refusal != nil {
		err = r.refusal
	}
	return err
}

// planning is the state of the command while it plans a configuration.
type planning struct {
	run    *assembly.Run
	shares []int // shares of a micro-batch, by rank

	gpu      *gpumodel.GPU // nil without --device-model
	progress *progress
	dry      *dry.Device
	memory   int64 // memory in bytes: of a device with its own memory, otherwise that of limit
	// limit is the memory that the process of a rank may use.
	limit memory.Limit
	start int64 // memory that this process used at its start, bytes
}

// open opens the device and determines the number of classes.
func (p *planning) open(ctx context.Context, size int64) error {
	p.start, _ = memory.Resident(memory.System(), 0)
	if err := p.openDevice(ctx, size); err != nil {
		return err
	}
	p.setLimits(size)
	// The device has no limit, because the report also contains plans that do not fit.
	p.dry = dry.New(p.run.Rank.Device, math.MaxInt64)
	if err := p.openData(ctx); err != nil {
		return err
	}
	p.run.PrepareLoading()
	return nil
}

// openDevice opens the configured device, or the model of a GPU, and settles the element type. The parameter size is
// that of setLimits.
func (p *planning) openDevice(ctx context.Context, size int64) error {
	if p.gpu != nil {
		dev, err := gpumodel.Open(*p.gpu)
		if err != nil {
			return err
		}
		return p.run.Rank.UseDevice(dev)
	}
	if err := nativelib.Loadable(); err != nil && p.run.Process.Cfg.Device.Kind == "auto" {
		p.run.Process.Cfg.Device.Kind = reference.Kind
		p.run.Process.Opts.Log.Warn("the plan is for the reference device: on other devices, parameters and operations are the same, but activations and workspaces have other sizes",
			"because", err)
	}
	p.run.Rank.HoldHeap()
	check := p.run.Rank.CheckAddresses
	if size > 0 { // the plan is for a process with another limit
		check = compute.CheckStart
	}
	if err := check(); err != nil {
		return err
	}
	if err := p.run.Rank.OpenDevice(ctx); err != nil {
		return err
	}
	return p.run.Rank.SettlePrecision(ctx, nil)
}

// openData opens the data set if this needs no files. It also opens it if the settings lack a property that the plan
// needs: the samples of a language model, or the number of classes.
func (p *planning) openData(ctx context.Context) error {
	c := p.run.Process.Cfg
	tokens, classes := c.Data.Samples == config.Tokens, c.Model.NumClasses
	if n, known := parts.KnownClasses(c); classes == 0 && known {
		classes = n
	}
	if tokens || classes == 0 || c.Data.Computed() {
		set, err := parts.OpenData(ctx, c, 0, p.run.Process.Opts.Log)
		switch {
		case err != nil && !tokens && classes == 0:
			return fmt.Errorf("%w; set model.num_classes, so that plan does not need the data", err)
		case err != nil:
			return err
		}
		p.run.Data = set
		p.run.Process.Later(set.Close)
		return nil
	}
	p.run.Unopened = true
	p.run.Data = parts.Unread(c, data.Splits{Train: unread{classes},
		Normalization: parts.UsualNormalization(p.run.Process.Opts.Env.Catalog, c.Data.Dataset)})
	return nil
}

// setLimits determines the memory that a rank may use. The value of --memory is size: the memory of the device, or of
// the process if the device computes in host memory. If size is 0, the memory is that of this machine.
func (p *planning) setLimits(size int64) {
	ranks := len(p.shares)
	if p.gpu != nil { // the process of a rank is on another machine, whose memory is unknown
		if p.memory = size; size == 0 {
			p.memory = p.run.Rank.MemoryBytes()
		}
		return
	}
	s := memory.Sharers{Coming: ranks - 1, Own: p.run.Rank.Own(ranks > 1)}
	if ranks > 1 { // one more process of this program starts the ranks, and waits
		s.Others = p.start
	}
	p.limit = memory.ReadLimit(memory.System(), s)
	p.limit.Bytes = max(p.limit.Bytes-p.limit.Spread(), min(p.limit.Bytes, 1))
	info := p.run.Rank.Device.Info()
	unified := replica.Unified(info)
	switch {
	case size > 0 && unified:
		p.limit, p.memory = memory.Limit{Bytes: size, Source: "--memory", Ranks: ranks}, size
	case unified:
		p.limit = within(p.limit, info.MemoryBytes, ranks)
		p.memory = p.limit.Bytes
	case size > 0:
		p.memory = size
	default:
		p.memory = p.run.Rank.MemoryBytes()
	}
	p.run.Rank.PlanHost(p.limit, s.Own)
}

// within returns the memory limit of a process whose device computes in host memory of the given size. Outside Linux,
// no limit of the process is known. In this case, the ranks divide the memory of the machine.
func within(l memory.Limit, bytes int64, ranks int) memory.Limit {
	if bytes > 0 && (l.Bytes == 0 || bytes/int64(ranks) < l.Bytes) {
		return memory.Limit{Bytes: bytes / int64(ranks), Source: "memory of the machine", Ranks: ranks}
	}
	return l
}

// deviceMemory returns the memory of a device with its own memory. For other devices, it returns 0.
func (p *planning) deviceMemory() int64 {
	if replica.Unified(p.run.Rank.Device.Info()) {
		return 0
	}
	return p.memory
}

// unread is a data set that was not read: it has no samples, and its number of classes is known.
type unread struct{ classes int }

func (u unread) Len() int          { return 1 }
func (u unread) Classes() []string { return make([]string, u.classes) }
func (u unread) Label(int) int     { return 0 }
func (u unread) NewReader() (data.Reader, error) {
	return nil, errors.New("plan: tried to read a sample, although plan reads no samples")
}

// replica returns the replica of a rank. The replica allocates no memory.
func (p *planning) replica(rank int) (*replica.Replica, error) {
	o, err := p.run.ReplicaOptions()
	if err != nil {
		return nil, err
	}
	o.MemoryBytes, o.Planning = p.deviceMemory(), true
	if p.gpu == nil {
		o.Host = p.run.HostMemory()
	}
	if len(p.shares) > 1 {
		ranks := echo{rank, len(p.shares)}
		o.Peers = assembly.Peers(p.run.Process.Cfg, &gradsync.Group{Grads: ranks, Stats: ranks})
		o.Peers.Shares = slices.Clone(p.shares)
		if o.Peers.CapBytes == 0 {
			// A real run determines the best bucket size by measurements at its start. The number of buckets does not
			// change the plan.
			o.Peers.CapBytes = gradsyncBucket
		}
	}
	r, err := replica.New(p.dry, o)
	if err != nil {
		return nil, fmt.Errorf("model %s on images of %d pixels (data.image_size): %w", p.run.Process.Cfg.Model.Name,
			p.run.Process.Cfg.Data.ImageSize, err)
	}
	return r, nil
}

// gradsyncBucket is the assumed size of a gradient bucket in bytes.
const gradsyncBucket = 25 << 20

// report plans the share of each rank. For the table, it plans the given numbers of samples.
func (p *planning) report(samples []int) (r Report, err error) {
	c, info := p.run.Process.Cfg, p.run.Rank.Device.Info()
	micro := c.Data.BatchSize / c.Train.MicroBatches()
	r = Report{Program: version.Text(), Model: c.Model.Name, Classes: len(p.run.Data.Classes()),
		ImageSize: c.Data.ImageSize, Precision: p.run.Rank.Precision.String(),
		Device: info.Name, DeviceModel: info.Model, MemoryBytes: p.memory, Limit: p.limit, Optimizer: c.Optimizer.Name,
		BatchSize: c.Data.BatchSize, Accumulation: c.Train.MicroBatches(),
		MicroBatch: micro, Table: []replica.Footprint{}, Ports: listeners(c)}
	if p.run.Unopened && !c.Data.DropLast {
		r.LastStep = "data.drop_last = false: the plan does not open the data set, so it contains no smaller last step of an epoch; the start of a run checks that step"
	}
	if t := p.run.Data.Tokens; t != nil {
		r.Tokens, r.ImageSize = t.Length, 0
	}
	first := slices.Index(p.shares, slices.Max(p.shares)) // the rank in the table: the largest share
	p.progress.set(fmt.Sprintf("compiling kernels of %s for %d samples; later plans take them from the cache", r.Model,
		p.shares[first]))
	model, err := p.replica(first)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	r.Parameters = model.ParamCount()
	known := map[int]replica.Footprint{}
	footprint := func(n int) (replica.Footprint, error) {
		if have, ok := known[n]; ok {
			return have, nil
		}
		p.progress.set(fmt.Sprintf("compiling kernels of %s for %d samples", r.Model, n))
		found, err := model.Footprint(n)
		known[n] = found
		return found, err
	}
	for rank, n := range p.shares {
		one := rankPlan{Rank: rank, Share: n, Fits: true}
		if n > 0 {
			fp, err := footprint(n)
			if err != nil {
				return r, err
			}
			one.Bytes, one.StepFL = fp.Bytes(), fp.ForwardFLOPs+fp.BackwardFLOPs
			one.Fits, one.HostBytes = fp.Account.Fits(), memory.Sum(fp.Account.Host)
			r.ForwardFLOPs += fp.ForwardFLOPs
			r.BackwardFLOPs += fp.BackwardFLOPs
		}
		r.Ranks = append(r.Ranks, one)
	}
	if len(c.Balance.FixedShares) > 0 {
		p.fitTogether(r.Ranks, known)
	}
	r.StepFLOPs = r.ForwardFLOPs + r.BackwardFLOPs
	if p.gpu != nil {
		if r.Prediction, err = p.predict(model, r); err != nil {
			return r, err
		}
	}
	p.progress.set("searching the largest number of samples that fits")
	if r.LargestFit, err = model.LargestFit(p.deviceMemory(), 1<<20); err != nil {
		return r, err
	}
	if r.LargestFit == 0 && slices.ContainsFunc(r.Ranks, func(one rankPlan) bool { return !one.Fits }) {
		least, err := footprint(p.unit())
		if err != nil {
			return r, err
		}
		whole := least.Account
		if whole.Limit.Bytes += p.limit.Spread(); whole.Fits() {
			p.run.Process.Opts.Log.Warn("the smallest micro-batch fits only if a run reserves no more addresses than this plan",
				"samples", least.Samples, "reserve_mib", p.limit.Spread()>>20)
		} else {
			r.refusal = &replica.MemoryError{Samples: least.Samples, Account: &least.Account}
		}
	}
	if len(p.shares) > 1 && len(c.Balance.FixedShares) == 0 && r.LargestFit > 0 {
		r.ReservedFor = min(micro, r.LargestFit)
		fp, err := footprint(r.ReservedFor)
		if err != nil {
			return r, err
		}
		r.Reserved = fp.Bytes()
	}
	if len(samples) == 0 {
		samples = p.usualSamples(p.shares[first], r.LargestFit)
	}
	for _, n := range samples {
		fp, err := footprint(n)
		if err != nil {
			return r, err
		}
		r.Table = append(r.Table, fp)
	}
	return r, nil
}

// fitTogether handles ranks with fixed shares that divide one memory. It marks a rank as fitting if the other ranks
// leave it enough of this memory.
func (p *planning) fitTogether(ranks []rankPlan, known map[int]replica.Footprint) {
	need := int64(0)
	for _, one := range ranks {
		need += known[one.Share].Account.HostBytes()
	}
	if need > p.limit.Bytes*int64(max(p.limit.Ranks, 1)) {
		return
	}
	for i := range ranks {
		account := known[ranks[i].Share].Account
		account.Limit = memory.Limit{}
		ranks[i].Fits = account.Fits()
	}
}

// unit returns the smallest number of samples of a micro-batch: a group of batch normalisation, or 1.
func (p *planning) unit() int {
	if p.run.Process.Cfg.Model.BatchNorm == "ghost" {
		return p.run.Process.Cfg.Model.GhostGroup
	}
	return 1
}

// usualSamples returns the default numbers of samples for the table. They are powers of two near the configured share,
// the share itself, and the largest share that fits.
func (p *planning) usualSamples(share, largest int) []int {
	list := []int{share}
	for _, n := range []int{1, 4, 16, 64} {
		list = append(list, n*p.unit())
	}
	if largest > 0 {
		list = append(list, largest)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// parseBytes parses a size: a number of bytes, or a text such as "8GiB", "80GB" or "512M", in which all units are
// binary.
func parseBytes(text string) (int64, error) {
	units := []struct {
		name string
		size float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6},
		{"KB", 1e3}, {"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"B", 1}, {"", 1}}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v > 0) || v*u.size >= math.MaxInt64 {
			break
		}
		return int64(v * u.size), nil
	}
	return 0, fmt.Errorf("got %q, want a size such as 8GiB, 80GB or 512MiB", text)
}
