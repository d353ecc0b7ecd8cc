package replica

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// Host describes the memory of this process for Options.Host.
type Host struct {
	Limit memory.Limit // memory that this process may use
	// Pool names what Limit is a part of: ranks with the same name divide it. "": no other rank has a part of it.
	Pool string
	// Program measures the memory of the process. The replica calls it once, before the model has memory.
	Program func() []memory.Part
	// Parts returns the memory that the run needs apart from the replica, for a share of a micro-batch: batches that
	// loaders hold, for example.
	Parts func(share int) []memory.Part
	// Optional is memory that the run takes only if it remains.
	Optional []memory.Part
	// Copies is set if this rank writes checkpoints from a copy of the tensors, if there is memory for it.
	Copies bool
}

// Names of parts of an account.
const (
	Program        = "program"            // of Host.Program
	Garbage        = "garbage of Go"      // of Host.Program: the heap may grow so much before it is collected
	ProgramFiles   = "program files"      // of Host.Program: mapped files, which control groups count as page cache
	Reserved       = "reserved addresses" // of Host.Program: they count against RLIMIT_AS and RLIMIT_DATA
	Staging        = "staging of weights" // through which weights are read and written
	Results        = "inputs and results" // of passes, in host memory
	PageTables     = "page tables"        // of all other memory
	CheckpointCopy = "checkpoint copy"    // optional: copy of the tensors of a checkpoint, all or nothing
)

// pageTableBytes is the memory of the entry of a page in the page tables, and pageBytes that of a page. A huge page has
// the entries of its small pages, too, so that the kernel can split it.
const pageTableBytes, pageBytes = 8, 4096

// Unified reports whether a device computes in host memory.
func Unified(info device.Info) bool { return info.Threads > 0 }

// measureProgram measures the memory of the process. The kernels of training exist then, and those of evaluations, but
// the memory of the model does not. free frees the plan of evaluations.
func (r *Replica) measureProgram(params *plan.Params) (free func() error, err error) {
	if r.opts.Host == nil || r.opts.Host.Program == nil {
		return func() error { return nil }, nil
	}
	g, err := r.opts.graph(graphOf{samples: r.opts.MicroBatch()})
	if err != nil {
		return nil, err
	}
	evaluation, err := plan.Compile(r.cache, g, params)
	if err != nil {
		return nil, err
	}
	r.program = r.opts.Host.Program()
	return evaluation.Free, nil
}

// account returns the memory of this rank with the given plans.
func (r *Replica) account(p *plans) memory.Account {
	f := r.footprint(p)
	a := memory.Account{Samples: p.samples, Unified: Unified(r.dev.Info()), Device: []memory.Part{
		{Name: "activations", Bytes: f.Arena}, {Name: "weights", Bytes: f.Weights + f.Statistics},
		{Name: "gradients", Bytes: f.Gradients}, {Name: "moments", Bytes: f.Moments},
		{Name: "averages", Bytes: f.Averages}, {Name: "norms", Bytes: f.Norms}, {Name: "buffers", Bytes: f.Other}}}
	a.DeviceLimit = r.opts.MemoryBytes
	host := r.opts.Host
	if host == nil {
		return a
	}
	a.Limit = r.limit
	batches := []memory.Part{{Name: Results, Bytes: p.hostBytes()*r.setsOfPlans() + p.staging}}
	if host.Parts != nil {
		batches = append(batches, host.Parts(p.samples)...)
	}
	a.Host = append(a.Host, r.program...)
	a.Host = append(a.Host, memory.Part{Name: Staging, Bytes: r.state.HostBytes()})
	a.Host = append(a.Host, batches...)
	// The largest tensor of the initial values exists before the activations and the batches do.
	beside := memory.Sum(batches)
	if a.Unified {
		beside += f.Arena
	}
	if more := r.largestValues() - beside; more > 0 {
		a.Host = append(a.Host, memory.Part{Name: "initial values", Bytes: more})
	}
	grows := memory.Sum(a.Host) - memory.Sum(r.program)
	if a.Unified {
		grows += a.DeviceBytes()
	}
	a.Host = append(a.Host, memory.Part{Name: PageTables, Bytes: grows / pageBytes * pageTableBytes})
	if host.Copies {
		a.Optional = append(a.Optional, memory.Part{Name: CheckpointCopy, Bytes: r.copyBytes()})
	}
	a.Optional = append(a.Optional, host.Optional...)
	return a.Grant(CheckpointCopy)
}

// spreadOfFiles divides the program files to get the difference between two measurements of the program that a run
// tolerates: 16 of 64 MiB. The program of a run has a few MiB more than that of a plan: records, telemetry and
// measurements at its start. Without the tolerance, a run would refuse the largest batch of its plan. The kernel can
// reclaim program files, so the tolerance costs no process its life; a larger one would leave too little for growth.
const spreadOfFiles = 4

// spread returns the bytes by which the account of a run may exceed its limit. A plan promises no batch that needs
// them.
func (r *Replica) spread() int64 {
	if r.opts.Planning || r.limit.Addresses { // nothing is reclaimed to make room for reserved addresses
		return 0
	}
	for _, p := range r.program {
		if p.Name == ProgramFiles {
			return p.Bytes / spreadOfFiles
		}
	}
	return 0
}

// setsOfPlans returns the number of sets of plans that exist at a time. A smaller micro-batch of the last step of an
// epoch has plans of its own (partPlans), whose inputs and outputs are at most those of the whole one.
func (r *Replica) setsOfPlans() int64 {
	if r.exact && r.opts.LastBatch%r.opts.MicroBatch() > 0 {
		return 2
	}
	return 1
}

// Account returns the memory of this rank for its largest share.
func (r *Replica) Account() memory.Account { return r.reserved }

// hostBytes returns the host memory of the inputs and outputs of all passes.
func (p *plans) hostBytes() (bytes int64) {
	for _, pass := range p.training() {
		bytes += pass.hostBytes()
	}
	if p.eval != nil {
		bytes += p.eval.hostBytes()
	}
	return bytes
}

// hostBytes returns the size of the buffer that bind allocates. The plan need not be bound.
func (p *pass) hostBytes() int64 {
	var inputs, results int64
	for _, name := range p.plan.InputNames() {
		if name != gradsync.SamplesInput {
			inputs += roundUp(p.plan.InputBytes(name), twinUnit)
		}
	}
	for _, name := range p.outputs() {
		results += roundUp(p.plan.OutputBytes(name), twinUnit)
	}
	return max(inputs+results*int64(max(p.slots, 1)), 1)
}

// refuseModel returns a *MemoryError if parameters, gradients and optimizer state alone exceed the limit of the
// process. The memory of the model does not exist yet: to touch it would end the process without a message.
func (r *Replica) refuseModel(params *plan.Params) error {
	host := r.opts.Host
	info := r.dev.Info()
	if r.opts.Planning || host == nil || host.Limit.Bytes == 0 || r.program == nil || !Unified(info) {
		return nil
	}
	sums := int64(1)
	if r.opts.Accumulation > 1 {
		sums++
	}
	limit := host.Limit
	limit.Bytes = max(limit.Bytes, limit.Hard)
	a := memory.Account{Unified: true, Limit: limit, Host: r.program, Device: []memory.Part{
		{Name: "weights", Bytes: params.Bytes + params.StateBytes},
		{Name: "gradients", Bytes: sums * params.TrainBytes},
		{Name: "moments", Bytes: int64(r.opts.Optimizer.MomentCount()) * params.TrainBytes}}}
	if a.Fits() {
		return nil
	}
	return &MemoryError{Samples: r.opts.MicroBatch(), HeldBytes: a.DeviceBytes(), Err: device.ErrOutOfMemory,
		Account: &a, Model: true}
}
