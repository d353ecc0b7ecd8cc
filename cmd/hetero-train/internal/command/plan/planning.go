package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
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
