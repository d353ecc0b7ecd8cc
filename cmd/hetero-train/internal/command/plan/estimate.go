package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

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
