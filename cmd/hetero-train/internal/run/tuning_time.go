package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/tuning"
)

const (
	// The timing of a candidate takes about tuningTime, with leastTimed to mostTimed steps. The time of the fastest
	// step is the time of the candidate.
	tuningTime            = 500 * time.Millisecond
	leastTimed, mostTimed = 3, 8

	// turns is the number of times that the first candidate and the fastest one are timed again, in turns. With fewer
	// turns, a disturbance of the machine could determine the choice. Each turn creates and trains two more replicas.
	turns = 2

	// most candidates for the number of micro-batches; each is at least twice the previous candidate
	mostMicro = 4
	usualCap  = 5 * 1 << 20 // bytes; size of buckets while numbers of micro-batches are timed
)

// time times the candidates: first numbers of micro-batches, then sizes of buckets.
func (t *tuner) time(ctx context.Context) error {
	runtime.LockOSThread() // the threads of a device belong to the calling thread
	defer runtime.UnlockOSThread()
	fixed := int64(0)
	if t.peers != nil {
		fixed = t.peers.CapBytes
	}
	if t.choice.MicroBatches == 0 {
		if err := t.timeMicro(ctx, cmp.Or(fixed, usualCap)); err != nil {
			return err
		}
	}
	t.choice.CapBytes = fixed
	if !t.buckets {
		return nil
	}
	return t.timeBuckets(ctx)
}

// timeBuckets times sizes of buckets. Sizes that contain all gradients differ only in the first bucket.
func (t *tuner) timeBuckets(ctx context.Context) error {
	caps := []int64{0, 1 << 20, 5 << 20, 25 << 20, noCap}
	caps = slices.DeleteFunc(caps, func(bytes int64) bool { return bytes != noCap && bytes > t.gradients })
	times := make([][]float64, len(caps))
	measure := func(i int) (err error) {
		times[i], err = t.step(ctx, t.choice.MicroBatches, caps[i])
		return err
	}
	for i, bytes := range caps {
		if err := measure(i); err != nil {
			return err
		}
		t.choice.Buckets = append(t.choice.Buckets, tuning.Timed{Name: capName(bytes), Seconds: slices.Max(times[i])})
	}
	best, err := confirmed(times, measure, &t.choice.Buckets)
	t.choice.CapBytes = caps[best]
	return err
}

// confirmed returns the index of the candidate to use. If the first candidate is not the fastest one, confirmed
// measures these two again in turns. A disturbance of the machine must not determine the choice. It compares the
// fastest time of each. The last entries of shown correspond to the entries of times; confirmed appends the additional
// times.
func confirmed(times [][]float64, measure func(i int) error, shown *[]tuning.Timed) (int, error) {
	rival := tuning.Fastest(times, 0)
	if rival == 0 {
		return 0, nil
	}
	skip := len(*shown) - len(times) // the first entries of shown are candidates that do not fit
	for range turns {
		for _, i := range []int{0, rival} {
			earlier := times[i]
			if err := measure(i); err != nil {
				return 0, err
			}
			*shown = append(*shown, tuning.Timed{Name: (*shown)[skip+i].Name + " again", Seconds: slices.Max(times[i])})
			if slices.Max(earlier) < slices.Max(times[i]) {
				times[i] = earlier
			}
		}
	}
	if tuning.Fastest([][]float64{times[0], times[rival]}, tuning.Margin) == 0 {
		return 0, nil
	}
	return rival, nil
}

// timeMicro times numbers of micro-batches: the smallest one that fits in the memory, and some larger ones.
func (t *tuner) timeMicro(ctx context.Context, capBytes int64) error {
	var times [][]float64
	var timed []int
	var full error // the error of the last number that does not fit
	for _, n := range t.possible() {
		if len(timed) == mostMicro || len(timed) > 0 && n < 2*timed[len(timed)-1] {
			continue
		}
		took, err := t.step(ctx, n, capBytes)
		if t.doesNotFit(err) && len(timed) == 0 {
			full = err
			t.choice.Micro = append(t.choice.Micro, tuning.Timed{Name: fmt.Sprint(n)})
			continue
		}
		if err != nil {
			return err
		}
		timed, times = append(timed, n), append(times, took)
		t.choice.Micro = append(t.choice.Micro, tuning.Timed{Name: fmt.Sprint(n), Seconds: slices.Max(took)})
	}
	if len(timed) == 0 {
		return full
	}
	best, err := confirmed(times, func(i int) (err error) {
		times[i], err = t.step(ctx, timed[i], capBytes)
		return err
	}, &t.choice.Micro)
	t.choice.MicroBatches = timed[best]
	return err
}

// doesNotFit reports whether err means that a micro-batch is too large for the memory. In a run of several ranks it
// accepts only ErrInfeasible, because all ranks detect this error (divide). Only one rank detects a failed allocation,
// so the ranks would disagree.
func (t *tuner) doesNotFit(err error) bool {
	if t.peers != nil {
		return errors.Is(err, divide.ErrInfeasible)
	}
	return errors.As(err, new(*replica.MemoryError)) || errors.Is(err, device.ErrOutOfMemory)
}

// step trains a replica with n micro-batches and buckets of at most capBytes for some steps. It returns the fastest
// step time of each rank (s), without the wait for data.
func (t *tuner) step(ctx context.Context, n int, capBytes int64) (took []float64, err error) {
	c := t.tr.process.Cfg
	c.Train.SetMicroBatches(n)
	o, err := t.tr.run.ReplicaOptions()
	if err != nil {
		return nil, err
	}
	o.Host = t.tr.run.HostMemory()
	reads := t.tr.run.Loading
	reads.Accumulation = n
	if t.peers != nil {
		peers := *t.peers
		peers.CapBytes, peers.Shares, peers.Divide = capBytes, nil, t.divide
		if fixed := t.tr.process.Cfg.Balance.FixedShares; len(fixed) > 0 {
			if peers.Shares, err = parts.Divide(t.tr.process.Cfg, t.ranks()); err != nil {
				return nil, err
			}
		}
		if peers.MaxShare, err = t.mostSamples(); err != nil {
			return nil, err
		}
		if peers.MaxShare == 0 {
			// With fixed shares, MemoryBytes remains 0, as in the run: a rank may use more than its part of the
			// machine's memory.
			peers.MemoryBytes = t.tr.rank.MemoryBytes()
		}
		o.Peers = &peers
	}
	model, err := replica.New(t.tr.rank.Device, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	t.gradients = 4 * model.ParamCount() // f32
	if o.Peers != nil {
		t.tr.run.ReadShare(&reads, model.Shares())
	}
	loader, err := data.NewLoader(reads)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, loader.Close()) }()
	return t.timeSteps(ctx, model, loader)
}

// divide returns the fixed shares of the configuration. Without fixed shares, it divides the batch equally, because the
// shares of the run are not known yet. The parameter limits has the largest share that fits in the memory of each rank.
func (t *tuner) divide(limits []int) ([]int, error) {
	if len(t.tr.process.Cfg.Balance.FixedShares) == 0 {
		b := parts.BatchOf(t.tr.process.Cfg)
		b.Limits = limits
		return b.Divide(slices.Repeat([]float64{1}, len(limits)))
	}
	shares, err := parts.Divide(t.tr.process.Cfg, len(limits))
	for rank, n := range shares {
		if n > limits[rank] {
			return nil, fmt.Errorf("%w: rank %d has memory for %d samples, and its share has %d", divide.ErrInfeasible,
				rank, limits[rank], n)
		}
	}
	return shares, err
}

// mostSamples returns the largest share for which this rank needs memory: its fixed share, rounded up to whole groups
// of batch normalization. Without fixed shares it returns 0, which means any share.
func (t *tuner) mostSamples() (int, error) {
	if len(t.tr.process.Cfg.Balance.FixedShares) == 0 {
		return 0, nil
	}
	shares, err := parts.Divide(t.tr.process.Cfg, t.ranks())
	if err != nil {
		return 0, err
	}
	unit := max(parts.BatchOf(t.tr.process.Cfg).Unit, 1)
	return max((shares[t.peers.Group.Rank()]+unit-1)/unit, 1) * unit, nil
}

// timeSteps times steps of a replica. The first step is not timed, because it touches memory for the first time. The
// longest first step of all ranks determines the number of timed steps, so that this number is equal on all ranks.
func (t *tuner) timeSteps(ctx context.Context, model *replica.Replica, loader *data.Loader) ([]float64, error) {
	one := func() (float64, error) {
		r, err := model.Step(ctx, loader, replica.StepOptions{Rate: 1e-6})
		return (r.Times.Total() - r.Times.Data).Seconds(), err
	}
	first, err := one()
	if err != nil {
		return nil, err
	}
	all, err := t.gather(ctx, first)
	if err != nil {
		return nil, err
	}
	steps := min(max(int(tuningTime.Seconds()/slices.Max(all)), leastTimed), mostTimed)
	least := 0.0
	for i := range steps {
		took, err := one()
		if err != nil {
			return nil, err
		}
		if i == 0 || took < least {
			least = took
		}
	}
	return t.gather(ctx, least)
}

// gather exchanges one number of each rank, and returns them by rank.
func (t *tuner) gather(ctx context.Context, own float64) ([]float64, error) {
	return process.GatherAll(ctx, t.tr.rank.Team, "times of candidates", "time of rank", own)
}
