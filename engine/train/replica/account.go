package replica

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// Names of parts of an account.
const (
	Program        = "program"            // of Host.Program
	Garbage        = "garbage of Go"      // of Host.Program: growth of the heap up to the next garbage collection
	ProgramFiles   = "program files"      // of Host.Program: mapped files, which control groups count as page cache
	Reserved       = "reserved addresses" // of Host.Program: they count against RLIMIT_AS and RLIMIT_DATA
	Staging        = "staging of weights" // buffer through which weights are read and written
	Results        = "inputs and results" // of passes, in host memory
	PageTables     = "page tables"        // of all other memory
	OtherKernels   = "kernels of shares"  // of an account that exceeds a limit of addresses; see explainAddresses
	CheckpointCopy = "checkpoint copy"    // optional: copy of the tensors of a checkpoint, all or nothing
)

// pageTableBytes is the size of the page table entry of one page, and pageBytes is the size of a page. The kernel also
// keeps the entries of the small pages of a huge page, so that it can split the huge page.
const pageTableBytes, pageBytes = 8, 4096

// Unified reports whether a device computes in host memory.
func Unified(info device.Info) bool { return info.Threads > 0 }

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
	// The buffer for initial values exists only before the activations and the batches. It therefore needs additional
	// memory only if it is larger.
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

// spreadOfFiles determines the tolerance for differences between two measurements of the program. The tolerance is the
// size of the program files divided by spreadOfFiles, for example 64 MiB / 4 = 16 MiB. During a run, the program has a
// few MiB more than during planning: records, telemetry and measurements at the start. Without the tolerance, a run
// would refuse the largest batch that its plan promised. The kernel can reclaim program files, so it does not end a
// process that uses the tolerance. A larger tolerance would leave too little memory for growth.
const spreadOfFiles = 4

// spread returns the number of bytes by which the account of a run may exceed its limit. A plan never promises a batch
// that needs these bytes.
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

// setsOfPlans returns the number of sets of plans that exist at the same time. A smaller micro-batch in the last step
// of an epoch has its own plans (partPlans). Their inputs and outputs are not larger than those of a whole micro-batch.
func (r *Replica) setsOfPlans() int64 {
	if r.exact && r.opts.LastBatch%r.opts.MicroBatch() > 0 {
		return 2
	}
	return 1
}

// Account returns the memory of this rank for its largest share.
func (r *Replica) Account() memory.Account { return r.reserved }

// Footprint computes the footprint for n samples of a micro-batch, rounded up to whole groups of batch normalisation.
// A rank with 0 samples only takes part in exchanges. Footprint compiles plans, but allocates no device memory for
// them.
func (r *Replica) Footprint(n int) (f Footprint, err error) {
	if n < 0 {
		return f, fmt.Errorf("replica: footprint of %d samples, want at least 0", n)
	}
	err = r.plans.inspect(n, func(p *plans) { f = r.footprint(p); f.Account = r.account(p) })
	return f, err
}

// LargestFit returns the largest number of samples of a micro-batch that fits: its device memory is at most bytes, and
// its account stays within the limit of the process (Options.Host). The parameter bytes is 0 if the device has no limit
// of its own. The result is at most limit and consists of whole groups of batch normalisation. It is 0 if not even one
// group fits.
func (r *Replica) LargestFit(bytes int64, limit int) (int, error) {
	free := int64(0)
	if bytes > 0 {
		if free = bytes - r.fixedBytes(); free == 0 {
			free = -1
		}
	}
	return r.plans.fitFromBelow(limit, r.opts.wholeGroup(), free)
}

// measureProgram measures the memory of the process. At this time, the kernels of training and of evaluations exist,
// but the memory of the model does not. The function free frees the plan of evaluations.
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

// refuseModel returns a *MemoryError if parameters, gradients and optimizer state alone exceed the limit of the
// process. It is called before the memory of the model is used, because the system would otherwise end the process
// without a message.
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
