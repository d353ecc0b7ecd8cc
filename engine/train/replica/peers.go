package replica

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Peers connects the replicas of the ranks that train together. All fields except a rank's own resources are equal on
// all ranks. A replica never changes them; it keeps the current shares in an owner (Replica.Shares).
type Peers struct {
	Group *gradsync.Group

	Shares []int // first shares: samples of a micro-batch for each rank; their sum is the micro-batch
	// Divide computes the first shares from the largest share of each rank. Its result must be equal on all ranks.
	// nil: the first shares are Shares. If both are set, Divide returns Shares or an error.
	Divide func(limits []int) ([]int, error)
	// Preview computes the first shares like Divide, without effects. If it is set, each rank keeps memory for data
	// that makes training faster (leaveRoom). The limits of the ranks may then be too low to take over the samples of a
	// lost rank.
	Preview func(limits []int) ([]int, error)
	// MaxShare is the largest share that this rank may get. It determines the memory that the rank allocates. 0 means
	// the whole micro-batch if Divide is set, and the rank's entry of Shares otherwise. A rank whose memory holds fewer
	// samples has a lower limit.
	MaxShare    int
	MemoryBytes int64 // device memory that this rank may use, if ranks share the device; 0: all memory

	// batch normalisation uses the samples of all ranks; otherwise the rank's own samples or groups of them
	SyncNorm bool

	Wire       tensor.DType // element type of transferred gradients: bf16, or Invalid for the type of the gradients
	CapBytes   int64        // size limit of a bucket; 0: choose buckets by timing passes and all-reduces at the start
	Sequential bool         // all-reduces start only after the backward pass
}

// statistics returns the exchange for batch normalisation over the samples of all ranks. It returns nil if each rank
// uses its own samples.
func (p *Peers) statistics(g *graph.Graph, micro int) *graph.Ranks {
	if p == nil || !p.SyncNorm {
		return nil
	}
	size := p.Group.Size()
	return &graph.Ranks{Rank: p.Group.Rank(), Count: size, Samples: g.Input(gradsync.SamplesInput, tensor.I32, size),
		Total: micro}
}

// openSync prepares the sums over ranks with default buckets. tuneSync can replace the buckets after the plans exist.
func (r *Replica) openSync(into device.Buffer) (err error) {
	if r.group == nil {
		return nil
	}
	if r.sums, err = r.newSync(into, nil); err != nil {
		return err
	}
	r.closer.add(func() error { return r.sums.Close() })
	if r.counts, err = r.group.NewRows(r.dev, "counts", countBytes); err == nil {
		r.closer.add(r.counts.Close)
	}
	return err
}

// openTally prepares the counts of predictions in evaluations, if the task has classes.
func (r *Replica) openTally() (err error) {
	report := r.opts.Task.Report()
	if report.Classes == 0 {
		return nil
	}
	if r.tally, err = newTally(r.dev, r.group, report); err == nil && r.tally.rows != nil {
		r.closer.add(r.tally.rows.Close)
	}
	return err
}

// tuneSync chooses the buckets, unless CapBytes fixes them, and passes the shares to the sums.
func (r *Replica) tuneSync(into device.Buffer) error {
	p := r.opts.Peers
	if p == nil {
		return nil
	}
	if err := r.sums.SetShares(r.shares.All()); err != nil || p.CapBytes != 0 {
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
	return r.sums.SetShares(r.shares.All())
}

// newSync creates a Sync that sums into a buffer. The buckets end at the offsets ends, in bytes. If ends is nil,
// CapBytes limits them.
func (r *Replica) newSync(into device.Buffer, ends []int64) (*gradsync.Sync, error) {
	p := r.opts.Peers
	return gradsync.New(r.cache, r.state, into, gradsync.Options{Group: r.group, Ends: ends,
		CapBytes: p.CapBytes, Wire: p.Wire,
		Sequential: p.Sequential, AverageStates: !p.SyncNorm, GhostGroup: r.opts.GhostGroup})
}

// chooseBuckets times a few passes. It returns the bucket ends with which the last all-reduce completes earliest.
func (r *Replica) chooseBuckets(sync *gradsync.Sync) (ends []int64, err error) {
	const passes = 3
	p := r.now.train
	joined, err := sync.Bind(p.plan, device.Whole(r.arena))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.plan.Close()) }() // frees the programs; the plan is bound again later
	if err := r.clearInputs(p.plan); err != nil {
		return nil, err
	}
	elapsed := make([]time.Duration, len(p.plan.Launches()))
	for i := range passes + 1 {
		if i == 1 {
			clear(elapsed) // the first pass includes page faults
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
	t, err := gradsync.Tune(context.Background(), r.group.Grads, r.dev, p.plan, elapsed, r.state.Grads,
		r.opts.Peers.Wire)
	return t.Ends, err
}

// clearInputs writes zeros to the inputs of a bound plan, so that the labels are valid.
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

// Agree returns a *gradsync.DifferenceError if the models or the buckets of the ranks differ.
func (r *Replica) Agree(ctx context.Context) error {
	if r.sums == nil {
		return nil
	}
	return gradsync.Compare(ctx, r.group.Grads, r.dev, r.sums.Fingerprint(r.now.train.plan))
}

// Spread copies the parameters, statistics, moments and averages of rank 0 to every rank. It returns rank 0's state,
// which may be nil. All ranks use the same layouts.
func (r *Replica) Spread(ctx context.Context, state *checkpoint.State) (*checkpoint.State, error) {
	if r.group == nil {
		return state, nil
	}
	grads := r.group.Grads
	var text []byte
	if grads.Rank() == 0 && state != nil {
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
	buffers := []device.Region{{Buffer: r.state.Values, Bytes: params.Bytes},
		{Buffer: r.state.States, Bytes: params.StateBytes}}
	for _, m := range r.optim.Moments() {
		buffers = append(buffers, device.Region{Buffer: m.Flat, Bytes: params.TrainBytes})
	}
	for _, b := range append(buffers, r.averages()...) {
		if b.Bytes == 0 {
			continue
		}
		if err := grads.Enqueue(collective.Broadcast{Name: "weights", Buffer: b}); err != nil {
			return nil, err
		}
	}
	if err := grads.Sync(ctx); err != nil {
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

// spreadBytes returns rank 0's bytes on every rank.
func (r *Replica) spreadBytes(ctx context.Context, text []byte) ([]byte, error) {
	comm := r.group.Grads
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
