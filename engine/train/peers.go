package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Peers connects the replicas of the ranks of one training. All fields except a rank's own resources are equal on all
// ranks.
type Peers struct {
	// Grads carries gradients, reports and weights. Stats carries exchanges within passes, which so never queue behind
	// a bucket.
	Grads, Stats collective.Communicator

	Shares []int // samples of a micro-batch for each rank; they sum to it
	// Divide returns the first Shares from the largest share of each rank. It returns the same on all ranks. nil keeps
	// Shares.
	Divide func(limits []int) ([]int, error)
	// MaxShare is the largest share that this rank will ever have; it determines the rank's memory. 0 means a whole
	// micro-batch with Divide, and the rank's entry of Shares without. NewReplica lowers it to what fits into memory.
	MaxShare    int
	MemoryBytes int64 // device memory that this rank may use, if ranks share the device; 0: all

	SyncNorm bool // batch normalisation over all ranks' samples; else over the rank's own samples or groups

	Wire       tensor.DType // of gradients in transit: bf16, or Invalid for their own type
	CapBytes   int64        // of a bucket; 0: chosen by timing passes and all-reduces at the start
	Sequential bool         // no overlap with the backward pass
}

// share returns this rank's share of a micro-batch; a single rank has all of it.
func (p *Peers) share(micro int) int {
	if p == nil {
		return micro
	}
	return p.Shares[p.Grads.Rank()]
}

// shares returns the current shares, nil for a single rank.
func (p *Peers) shares() []int {
	if p == nil {
		return nil
	}
	return p.Shares
}

// reads returns this rank's share for a data.Loader.
func (p *Peers) reads() data.Share {
	s, rank := data.Share{}, p.Grads.Rank()
	for _, n := range p.Shares[:rank] {
		s.Offset += n
	}
	s.Count = p.Shares[rank]
	return s
}

// Reads returns the part of each batch that this rank's loaders read, and the largest part they will ever read.
func (p *Peers) Reads() (share data.Share, most int) {
	share = p.reads()
	return share, max(p.MaxShare, share.Count, 1)
}

// check returns an error for shares that do not sum to a micro-batch, or that cut a group of samples of batch
// normalisation. Only the last group, which ends with the micro-batch, may be smaller.
func (p *Peers) check(shares []int, micro, group int) error {
	if len(shares) != p.Grads.Size() {
		return fmt.Errorf("replica: got %d shares, want one for each of %d ranks", len(shares), p.Grads.Size())
	}
	sum := 0
	for rank, n := range shares {
		if n < 0 {
			return fmt.Errorf("replica: share of rank %d: got %d samples, want 0 or more", rank, n)
		}
		if sum += n; group > 0 && !p.SyncNorm && n%group != 0 && sum != micro {
			return fmt.Errorf("replica: share of rank %d: got %d samples, want a multiple of a group of %d", rank, n, group)
		}
	}
	if sum != micro {
		return fmt.Errorf("replica: shares %v hold %d samples, want the %d of a micro-batch", shares, sum, micro)
	}
	return nil
}

// statistics returns the exchange for batch normalisation over all ranks' samples, nil if each rank uses its own
// samples.
func (p *Peers) statistics(g *graph.Graph, micro int) *graph.Ranks {
	if p == nil || !p.SyncNorm {
		return nil
	}
	size := p.Grads.Size()
	return &graph.Ranks{Rank: p.Grads.Rank(), Count: size, Samples: g.Input(gradsync.SamplesInput, tensor.I32, size), Total: micro}
}

// Abort ends the run on the other ranks with this rank's cause.
func (p *Peers) Abort(cause error) {
	if p != nil {
		p.Grads.Abort(cause)
		p.Stats.Abort(cause)
	}
}

// Drain waits until no operation of a failed communicator accesses memory.
func (p *Peers) Drain() {
	if p != nil {
		p.Grads.Sync(context.Background()) // returns the known failure
		p.Stats.Sync(context.Background())
	}
}

// openSync prepares the sums over ranks. Its buckets may change once plans exist to choose them by.
func (r *Replica) openSync(into device.Buffer) (err error) {
	if r.opts.Peers == nil {
		return nil
	}
	if r.sums, err = r.newSync(into, nil); err != nil {
		return err
	}
	r.closer.add(func() error { return r.sums.Close() })
	if r.reports, err = newReports(r.dev, r.opts.Peers.Grads); err != nil {
		return err
	}
	r.closer.add(r.reports.host.Free)
	return nil
}

// tuneSync fixes the buckets and passes the shares to the sums.
func (r *Replica) tuneSync(into device.Buffer) error {
	p := r.opts.Peers
	if p == nil {
		return nil
	}
	if err := r.sums.SetShares(p.Shares); err != nil || p.CapBytes != 0 {
		return err
	}
	ends, err := r.chooseBuckets(r.sums)
	if err := errors.Join(err, r.sums.Close()); err != nil {
		return err
	}
	sums, err := r.newSync(into, ends)
	if err != nil {
		return err
	}
	r.sums = sums
	return r.sums.SetShares(p.Shares)
}

// newSync creates a Sync into a buffer, with buckets that end at ends; nil ends buckets by CapBytes.
func (r *Replica) newSync(into device.Buffer, ends []int64) (*gradsync.Sync, error) {
	p := r.opts.Peers
	return gradsync.New(r.cache, r.state, into, gradsync.Options{Grads: p.Grads, Stats: p.Stats, Ends: ends, CapBytes: p.CapBytes, Wire: p.Wire,
		Sequential: p.Sequential, AverageStates: !p.SyncNorm, GhostGroup: r.opts.GhostGroup})
}

// chooseBuckets times a few passes and returns the bucket ends with which the last all-reduce ends first.
func (r *Replica) chooseBuckets(sync *gradsync.Sync) (ends []int64, err error) {
	const passes = 3
	p := r.now.train
	joined, err := sync.Bind(p.plan, device.Whole(r.arena))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.plan.Close()) }() // frees its programs: the plan is bound again later
	if err := r.clearInputs(p.plan); err != nil {
		return nil, err
	}
	elapsed := make([]time.Duration, len(p.plan.Launches()))
	for i := range passes + 1 {
		if i == 1 {
			clear(elapsed) // the first pass also pays for page faults
		}
		if err := joined.RunTimed(r.stream, elapsed); err != nil {
			return nil, err
		}
	}
	for i := range elapsed {
		elapsed[i] /= passes
	}
	if p.idle {
		elapsed = nil
	}
	t, err := gradsync.Tune(context.Background(), r.opts.Peers.Grads, r.dev, p.plan, elapsed, r.state.Grads, r.opts.Peers.Wire)
	return t.Ends, err
}

// clearInputs writes zeros to the inputs of a bound plan, because labels must be valid.
func (r *Replica) clearInputs(p *plan.Plan) error {
	for _, name := range p.InputNames() {
		to, _, err := p.Input(name)
		if err != nil {
			return err
		}
		zeros, err := r.dev.AllocHost(to.Bytes)
		if err != nil {
			return err
		}
		clear(zeros.Host())
		err = errors.Join(r.stream.Copy(to, device.Whole(zeros)), r.stream.Sync(), zeros.Free())
		if err != nil {
			return fmt.Errorf("clear input %s: %w", name, err)
		}
	}
	return nil
}

// agree returns a *gradsync.DifferenceError unless all ranks train the same model and sum the same buckets.
func (r *Replica) agree(ctx context.Context) error {
	if r.sums == nil {
		return nil
	}
	return gradsync.Compare(ctx, r.opts.Peers.Grads, r.dev, r.sums.Fingerprint(r.now.train.plan))
}

// checkReplicas returns a *gradsync.ReplicaError, which names the odd ranks, unless all ranks hold the same bits.
func (r *Replica) checkReplicas(ctx context.Context) error {
	hash, err := r.sums.Hash(r.stream, r.averages()...)
	if err != nil {
		return err
	}
	err = gradsync.Replicas(ctx, r.opts.Peers.Grads, r.dev, hash)
	if errors.As(err, new(*gradsync.ReplicaError)) {
		// A barrier keeps every rank until all know the error. A rank that only saw another rank leave would save its
		// own state as valid.
		if waitErr := r.opts.Peers.Grads.Enqueue(collective.Barrier{Name: "replicas differ"}); waitErr == nil {
			_ = r.opts.Peers.Grads.Sync(ctx) // the run ends with or without an error of the barrier
		}
	}
	return err
}

// spread copies rank 0's parameters, statistics, moments and averages to every rank, and returns rank 0's state, which
// may be nil. Layouts are equal on all ranks.
func (r *Replica) spread(ctx context.Context, state *checkpoint.State) (*checkpoint.State, error) {
	p := r.opts.Peers
	if p == nil {
		return state, nil
	}
	var text []byte
	if p.Grads.Rank() == 0 && state != nil {
		var err error
		if text, err = json.Marshal(state); err != nil {
			return nil, fmt.Errorf("state for the other ranks: %w", err)
		}
	}
	text, err := r.spreadBytes(ctx, text)
	if err != nil {
		return nil, err
	}
	params := r.state.Params
	buffers := []device.Region{{Buffer: r.state.Values, Bytes: params.Bytes}, {Buffer: r.state.States, Bytes: params.StateBytes}}
	for _, m := range r.optim.Moments() {
		buffers = append(buffers, device.Region{Buffer: m.Flat, Bytes: params.TrainBytes})
	}
	for _, b := range append(buffers, r.averages()...) {
		if b.Bytes == 0 {
			continue
		}
		if err := p.Grads.Enqueue(collective.Broadcast{Name: "weights", Buffer: b}); err != nil {
			return nil, err
		}
	}
	if err := p.Grads.Sync(ctx); err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, nil
	}
	got := new(checkpoint.State)
	if err := json.Unmarshal(text, got); err != nil {
		return nil, fmt.Errorf("state of rank 0: %w", err)
	}
	return got, nil
}

// spreadBytes returns rank 0's text on every rank.
func (r *Replica) spreadBytes(ctx context.Context, text []byte) ([]byte, error) {
	comm := r.opts.Peers.Grads
	send := func(bytes []byte) ([]byte, error) {
		host, err := r.dev.AllocHost(int64(len(bytes)))
		if err != nil {
			return nil, err
		}
		defer host.Free()
		copy(host.Host(), bytes)
		if err := comm.Enqueue(collective.Broadcast{Name: "state", Buffer: device.Whole(host)}); err != nil {
			return nil, err
		}
		if err := comm.Sync(ctx); err != nil {
			return nil, err
		}
		return append([]byte(nil), host.Host()...), nil
	}
	length, err := send(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length)
	if n == 0 {
		return nil, nil
	}
	if comm.Rank() != 0 {
		text = make([]byte, n)
	}
	return send(text)
}
