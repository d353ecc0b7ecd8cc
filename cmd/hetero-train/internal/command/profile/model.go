package profile

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/balancer/estimate"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

const (
	// profileBatch is the maximum number of samples in each of the first measured steps. With a larger number, a slow
	// rank would complete too few steps within modelTime.
	profileBatch = 32
	modelTime    = 4 * time.Second  // duration of the first measured steps
	modelSteps   = 3                // minimum number of measured steps for a share
	curveTime    = 10 * time.Second // total duration of the steps with several shares
	// number of visits of each share for which curveTime must suffice; with fewer visits, one slow visit would change
	// the median
	curveVisits = 3
	leastVisits = 2 // minimum number of visits of a share; with fewer, the error cannot be estimated
	visitTime   = 200 * time.Millisecond
)

// model is the configured model on the device of this rank, with data.
type model struct {
	run     *assembly.Run
	samples data.Samples
	replica *replica.Replica
}

// openModel opens the configured model for micro-batches with the given number of samples. A step consists of
// accumulation micro-batches. Images are synthetic, texts are those of the configured data set.
func openModel(ctx context.Context, k *compute.Rank, samples, accumulation int) (*model, error) {
	cfg := *k.Process.Cfg
	cfg.Data.BatchSize, cfg.Train.GradAccumulation = samples*accumulation, accumulation
	cfg.Model.GhostGroup = min(cfg.Model.GhostGroup, samples)
	m := &model{run: assembly.New(&cfg, session.Options{Env: k.Process.Opts.Env})}
	m.run.Rank.Device, m.run.Rank.Precision = k.Device, k.Precision
	if k.Process.Opts.Env.Catalog.SamplesOf(cfg.Model.Name) == config.Tokens {
		opened, err := parts.OpenData(ctx, &cfg, 0, k.Process.Opts.Log)
		if err != nil {
			return nil, err
		}
		m.run.Data, m.samples = opened, opened.Tokens.Train
	} else {
		set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 2 * cfg.Data.BatchSize, Eval: 1,
			Classes: max(min(cfg.Model.NumClasses, 100), 2), Size: cfg.Data.ImageSize})
		if err != nil {
			return nil, err
		}
		m.run.Data = &parts.Opened{Splits: set.Cached(0)}
		m.samples = data.Images{
			Dataset: m.run.Data.Train, Transform: data.Transform{Crop: data.PadCrop, Size: cfg.Data.ImageSize}}
	}
	options, err := m.run.ReplicaOptions()
	if err != nil {
		return nil, err
	}
	options.Host = m.run.HostMemory()
	m.replica, err = replica.New(k.Device, options)
	return m, err
}

// loader returns a loader of micro-batches with the given number of samples.
func (m *model) loader(samples int) (*data.Loader, error) {
	accumulation := m.run.Process.Cfg.Train.MicroBatches()
	return data.NewLoader(data.Options{Samples: m.samples, Seed: 1, BatchSize: samples * accumulation,
		Accumulation: accumulation, Workers: 1})
}

// profileModel measures steps of the configured model with a few samples. It sets the time per sample. It also sets the
// memory-bound fraction of a step, which follows from the operations and bytes of the plan. It returns the largest
// share that fits into memory, at most a whole micro-batch. All ranks measure at the same time, as in training.
func (p *profiling) profileModel(ctx context.Context) (most int, err error) {
	k, r := p.rank, &p.report.Rank
	batch := parts.BatchOf(k.Process.Cfg)
	m, err := openModel(ctx, k, min(profileBatch, max(batch.Total/max(k.Process.Opts.Assignment.WorldSize, 1), 2)), 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.replica.Close()) }()
	var work []profiles.Work
	for _, l := range m.replica.Plan().Launches() {
		work = append(work, profiles.Work{FLOPs: l.FLOPs, Bytes: l.Bytes})
	}
	if p.report.PerSample, err = m.timeSteps(ctx); err != nil {
		return 0, err
	}
	p.report.MemoryFraction = profiles.MemoryFraction(work, float64(r.Measured.TFLOPS), float64(r.Measured.Memory.Copy))
	return m.replica.LargestFit(r.MemoryBytes, batch.Total)
}

// timeSteps trains for modelTime and returns the time per sample of this rank, in seconds.
func (m *model) timeSteps(ctx context.Context) (perSample float64, err error) {
	samples := m.run.Process.Cfg.Data.BatchSize
	loader, err := m.loader(samples)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, loader.Close()) }()
	runtime.LockOSThread() // the threads of a device belong to the thread that opened it
	defer runtime.UnlockOSThread()
	if _, err := m.replica.Step(ctx, loader, replica.StepOptions{Rate: 0.01}); err != nil {
		// Do not measure the first step, which also loads code.
		return 0, err
	}
	began := time.Now()
	for n := 1; ; n++ {
		if _, err := m.replica.Step(ctx, loader, replica.StepOptions{Rate: 0.01}); err != nil {
			return 0, err
		}
		if took := time.Since(began); n >= modelSteps && took >= modelTime {
			return took.Seconds() / float64(n*samples), nil
		}
	}
}

// profileShares measures steps of the configured model with several shares around the expected share of this rank. The
// largest share that fits into memory is limit. The number of shares depends on the expected duration of the steps.
func (p *profiling) profileShares(ctx context.Context, expected float64, limit int) (err error) {
	k, batch := p.rank, parts.BatchOf(p.rank.Process.Cfg)
	accumulation, unit := k.Process.Cfg.Train.MicroBatches(), max(batch.Unit, 1)
	shares := affordable(estimate.ProfileShares(expected, min(limit, batch.Total), unit),
		p.report.PerSample*float64(accumulation))
	if len(shares) < 2 {
		return fmt.Errorf("got %v s for a sample, want the times of two shares within %v", p.report.PerSample,
			curveTime)
	}
	m, err := openModel(ctx, k, slices.Max(shares), accumulation)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.replica.Close()) }()
	times, err := m.timeShares(ctx, shares)
	if err != nil {
		return err
	}
	times.Setting = assembly.CurveSetting(k.Process.Cfg, k.Precision.String())
	p.report.Rank.StepTimes = times
	return nil
}

// affordable selects shares that can all be visited curveVisits times within three quarters of curveTime. Shares that
// come earlier in the list have priority. The estimate assumes that the time of a step is proportional to its number of
// samples. The last quarter of curveTime is a reserve, because this may be wrong.
func affordable(shares []int, perSample float64) (list []int) {
	left := curveTime.Seconds() * 3 / 4
	for _, n := range shares {
		if cost := (curveVisits + 1) * float64(n) * perSample; cost <= left {
			list, left = append(list, n), left-cost
		}
	}
	return list
}

// timeShares visits all shares in turns until curveTime has passed. It does not measure the first step of the first
// visit of a share, which also compiles plans.
func (m *model) timeShares(ctx context.Context, shares []int) (*profiles.StepTimes, error) {
	runtime.LockOSThread() // the threads of a device belong to the thread that opened it
	defer runtime.UnlockOSThread()
	var rounds [][]float64 // step times in seconds, by round and share
	began := time.Now()
	steps := make([]int, len(shares))
	for len(rounds) < leastVisits || time.Since(began) < curveTime {
		round := make([]float64, len(shares))
		for i, samples := range shares {
			if len(rounds) >= leastVisits && time.Since(began) > curveTime {
				return stepTimes(shares, steps, rounds), nil
			}
			n, err := 0, error(nil)
			if round[i], n, err = m.visit(ctx, samples, len(rounds) == 0); err != nil {
				return nil, fmt.Errorf("share of %d samples: %w", samples, err)
			}
			steps[i] += n
		}
		rounds = append(rounds, round)
	}
	return stepTimes(shares, steps, rounds), nil
}

// visit trains with a share for visitTime, but at least for one measured step. It returns the mean time of a step in
// seconds. If first is true, it does not measure the first step.
func (m *model) visit(ctx context.Context, samples int, first bool) (seconds float64, steps int, err error) {
	if err := m.replica.SetSamples(samples); err != nil {
		return 0, 0, err
	}
	loader, err := m.loader(samples)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, loader.Close()) }()
	if first {
		if _, err := m.replica.Step(ctx, loader, replica.StepOptions{Rate: 0.01}); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	for steps = 1; ; steps++ {
		if _, err := m.replica.Step(ctx, loader, replica.StepOptions{Rate: 0.01}); err != nil {
			return 0, 0, err
		}
		if took := time.Since(began); took >= visitTime {
			return took.Seconds() / float64(steps), steps, nil
		}
	}
}

// stepTimes computes the step time with each share from the visits of all rounds. If the whole machine is slow during a
// round, all shares of this round are affected alike. stepTimes therefore divides each time by the median of its round,
// before it computes the median over the rounds.
func stepTimes(shares, steps []int, rounds [][]float64) *profiles.StepTimes {
	levels, relative := make([]float64, len(rounds)), make([][]float64, len(shares)) // logarithms of times
	for j, round := range rounds {
		logs := make([]float64, len(round))
		for i, seconds := range round {
			logs[i] = math.Log(seconds)
		}
		levels[j] = median(logs)
		for i, l := range logs {
			relative[i] = append(relative[i], l-levels[j])
		}
	}
	out, squares := &profiles.StepTimes{}, 0.0
	for i, list := range relative {
		center := median(list)
		for _, l := range list {
			squares += (l - center) * (l - center)
		}
		out.Points = append(out.Points, profiles.StepTime{
			Samples: shares[i], Seconds: measure.Figure(math.Exp(center + median(levels))), Steps: steps[i]})
	}
	const medianToMean = 1.25 // ratio of the standard error of a median to that of a mean
	visits := float64(len(rounds))
	out.Error = medianToMean * math.Sqrt(squares/(float64(len(shares))*(visits-1))/visits)
	slices.SortFunc(out.Points, func(a, b profiles.StepTime) int { return cmp.Compare(a.Samples, b.Samples) })
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// expectedShare gathers the measured speeds of all ranks. It returns the share of this rank, in samples, if shares are
// proportional to the speeds. It returns 0 if the speed of a rank is unknown. All ranks must call it.
func (p *profiling) expectedShare(ctx context.Context) (float64, error) {
	own := p.report.PerSample
	words, err := p.rank.Team.Group.Gather(ctx, "profile: time per sample",
		binary.LittleEndian.AppendUint64(nil, math.Float64bits(own)))
	if err != nil {
		return 0, err
	}
	speed := 0.0 // sum over all ranks, in samples/s
	for rank, w := range words {
		if len(w) != 8 {
			return 0, fmt.Errorf("profile: time per sample of rank %d: got %d bytes, want 8", rank, len(w))
		}
		seconds := math.Float64frombits(binary.LittleEndian.Uint64(w))
		if !(seconds > 0) {
			return 0, nil
		}
		speed += 1 / seconds
	}
	return float64(parts.BatchOf(p.rank.Process.Cfg).Total) / (own * speed), nil
}
