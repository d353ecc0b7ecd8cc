package rebalance

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// Parameters of the measurement at the start of a run without a profile.
const (
	startLimit = 2 * time.Second // time limit of the whole measurement after rank discovery
	// part of startLimit for preparation: all measuring ranks compile kernels and fill memory at the same time
	startPrepare = 600 * time.Millisecond
	startRounds  = 3 // number of measurements of each rank; the score is the median
	// Minimum time of one measurement. With a smaller value, a slow rank computes only a few passes in this time.
	leastSlice  = 40 * time.Millisecond
	startTensor = 16 << 20 // size of a tensor, bytes; even a fifth of a CPU can fill two tensors within startPrepare
)

// typeKey identifies the type of a rank's device and its element type. Ranks with equal keys use the same measurements.
func typeKey(r *profiles.Rank) string { return r.DeviceType + "\n" + r.Measured.DType }

// startProfile returns a profile with the measurements of each rank. The measurements come from the cache. If the cache
// has none for a type of device, one rank measures its device. If measurements are missing, p is nil and reason
// explains why. All ranks must call startProfile, and all ranks get the same result.
func (b *Balancer) startProfile(ctx context.Context) (p *profiles.Ranks, reason string, err error) {
	mode := b.known[0].AtStart
	switch {
	case mode == "off":
		return nil, "profile.at_start is off", nil
	case len(b.cfg.Balance.FixedShares) > 0:
		return nil, "balance.fixed_shares divides the batch", nil
	}
	known := map[string]profiles.Measured{}
	var measures []int // ranks that measure: the first rank of each type without cached measurements
	for rank := range b.known {
		r := &b.known[rank].Profile
		if _, found := known[typeKey(r)]; r.Measured.TFLOPS.Known() && !found {
			known[typeKey(r)] = r.Measured
		}
	}
	for rank := range b.known {
		r := &b.known[rank].Profile
		alike := func(other int) bool { return typeKey(&b.known[other].Profile) == typeKey(r) }
		if _, found := known[typeKey(r)]; !found && !slices.ContainsFunc(measures, alike) {
			measures = append(measures, rank)
		}
	}
	b.logKept()
	if len(measures) > 0 && b.run.Foreign != nil {
		return nil, fmt.Sprintf("rank %d reports no measured speed", measures[0]), nil
	}
	if len(measures) > 0 {
		if reason, err = b.measureTypes(ctx, measures, known); reason != "" || err != nil {
			return nil, reason, err
		}
	}
	p = &profiles.Ranks{Origin: profiles.Origin{SchemaVersion: profiles.SchemaVersion,
		Created: time.Now().UTC().Truncate(time.Second), Program: version.Text(), Quick: true}}
	for rank := range b.known {
		r := b.known[rank].Profile
		r.Measured = known[typeKey(&r)]
		p.Ranks = append(p.Ranks, r)
	}
	if err := p.Rate("", nil); err != nil {
		return nil, err.Error(), nil
	}
	p.Seal()
	own := p.Ranks[b.run.Process.Opts.Assignment.Rank]
	if b.figures != nil && !b.known[own.Rank].Profile.Measured.TFLOPS.Known() {
		if err := b.figures.Store(figuresKey(&own), &own.Measured); err != nil {
			b.log().Warn("the measurements of this device cannot be cached, so the next run measures again", "error",
				err)
		}
	}
	return p, "", nil
}

// typeFigures is the message with which a rank sends its measurement.
type typeFigures struct {
	Measured profiles.Measured
	Error    string
}

// measureTypes measures the devices of the ranks in measures, and adds the results to known. If a measurement is not
// possible, the result reason explains why; otherwise reason is "".
func (b *Balancer) measureTypes(ctx context.Context, measures []int, known map[string]profiles.Measured) (
	reason string, err error) {
	a, began := b.run, time.Now()
	t := compute.Turns{Count: 1}
	if a.Rank.Team != nil {
		t = compute.TurnsOf(a.Rank.Team.Group.Members(), measures, a.Process.Opts.Assignment.Rank)
	}
	slice := (startLimit - startPrepare) / time.Duration(t.Count*startRounds)
	if slice < leastSlice {
		return fmt.Sprintf("a machine has %d types of devices, too many to measure within %v", t.Count, startLimit), nil
	}
	var own typeFigures
	var speed *measure.Speed
	if t.Own >= 0 {
		r := &b.known[a.Process.Opts.Assignment.Rank].Profile
		own.Measured = r.Measured
		var openErr error
		speed, openErr = measure.OpenSpeed(ctx, a.Rank.Device, measure.SpeedOptions{DType: a.Rank.Precision,
			CPUs: a.Rank.ClockCPUs(r.Device.CPUs), TensorBytes: compute.TensorBytes(a.Rank.Device.Info(), startTensor)})
		if openErr != nil {
			speed, own.Error = nil, openErr.Error()
		}
	}
	// Wait for all ranks: a rank that still prepares would disturb the measurement of another rank.
	if a.Rank.Team != nil {
		if err := a.Rank.Team.Group.Barrier(ctx, "compute scores"); err != nil {
			return "", err
		}
	}
	if err := t.Take(ctx, a.Rank.Team, speed, startRounds, slice, began.Add(startLimit)); err != nil {
		own.Error = err.Error()
	}
	if speed != nil {
		var product measure.Compute
		product, own.Measured.Memory = speed.Result()
		own.Measured.TFLOPS, own.Measured.All = product.TFLOPS, []measure.Compute{product}
		if err := speed.Close(); err != nil && own.Error == "" {
			own.Error = err.Error()
		}
	}
	word, err := json.Marshal(own)
	if err != nil {
		return "", err
	}
	words, err := a.Rank.Team.Gather(ctx, "figures of device types", word)
	if err != nil {
		return "", err
	}
	for _, rank := range measures {
		var f typeFigures
		if err := json.Unmarshal(words[rank], &f); err != nil {
			return "", fmt.Errorf("figures of rank %d's device: %w", rank, err)
		}
		if f.Error != "" {
			return fmt.Sprintf("rank %d could not be measured: %s", rank, f.Error), nil
		}
		known[typeKey(&b.known[rank].Profile)] = f.Measured
	}
	if a.Rank.Team.Leads() {
		b.log().Info("compute scores measured", "device_types", b.deviceTypes(), "measured", len(measures), "took",
			time.Since(began).Round(time.Millisecond))
	}
	return "", nil
}

// deviceTypes returns the number of different combinations of device type and element type.
func (b *Balancer) deviceTypes() int {
	types := map[string]bool{}
	for rank := range b.known {
		types[typeKey(&b.known[rank].Profile)] = true
	}
	return len(types)
}

// figuresKey returns the key of a rank's measurements in the cache.
func figuresKey(r *profiles.Rank) profiles.CacheKey {
	return profiles.CacheKey{Fingerprint: r.Fingerprint, DeviceType: r.DeviceType, DType: r.Measured.DType,
		Program: version.Text()}
}

// loadFigures sets r.Measured to the cached measurements of this rank's device, and returns their origin. It returns
// nil if there are none.
func (b *Balancer) loadFigures(r *profiles.Rank) *keptScore {
	dir, err := parts.UserCache("profiles")
	if err != nil {
		b.log().Debug("the measurements of this device cannot be cached", "error", err)
		return nil
	}
	b.figures = profiles.OpenCache(dir)
	if b.cfg.Profile.AtStart != "auto" {
		return nil
	}
	kept, err := b.figures.Load(figuresKey(r))
	if err != nil {
		b.log().Warn("the cached measurements of this device cannot be used; the run measures again", "error", err)
	} else if kept != nil {
		r.Measured = kept.Measured
		return &keptScore{Created: kept.Created, File: kept.File}
	}
	return nil
}

// logKept logs, on rank 0, each type of device that uses cached measurements.
func (b *Balancer) logKept() {
	if b.run.Rank.Team == nil || !b.run.Rank.Team.Leads() {
		return
	}
	said := map[string]bool{}
	for rank := range b.known {
		k := &b.known[rank]
		if key := typeKey(&k.Profile); k.Kept != nil && !said[key] {
			said[key] = true
			b.log().Info(
				"using the compute score of an earlier run; to measure again, set profile.at_start = \"measure\"",
				"device", k.Device, "precision", k.Profile.Measured.DType,
				"age", ageText(time.Since(k.Kept.Created)), "file", k.Kept.File, "rank", rank)
		}
	}
}

// ageText formats an age: "less than a minute", "5 minutes", "26 hours", "3 days".
func ageText(age time.Duration) string {
	for _, unit := range []struct {
		name  string
		long  time.Duration
		least int // minimum count at which ageText uses this unit
	}{{"days", 24 * time.Hour, 2}, {"hours", time.Hour, 2}, {"minutes", time.Minute, 2}, {"minute", time.Minute, 1}} {
		if n := int(age / unit.long); n >= unit.least {
			return fmt.Sprintf("%d %s", n, unit.name)
		}
	}
	return "less than a minute"
}

// SaveProfile writes the scores of all ranks to the subfolder configs of the experiment.
func (b *Balancer) SaveProfile() {
	if b == nil || b.profile == nil || b.run.Folder == nil {
		return
	}
	e := b.run.Process.Cfg.Experiment
	if err := profiles.SaveRanks(filepath.Join(e.OutputDir, e.Name, "configs"), b.profile); err != nil {
		b.log().Warn("the compute scores cannot be written", "error", err)
	}
}

// checkScores compares the predictions of the scores with the times per sample in the first window of a run. It logs
// the result.
func (b *Balancer) checkScores(shares []int, seconds func(rank int) float64) {
	if b.profile == nil || b.profile.Prediction != nil {
		return
	}
	perSample := make([]float64, len(shares))
	for rank, n := range shares {
		perSample[rank] = seconds(rank) / float64(n)
	}
	if b.profile.Prediction = profiles.Predict(b.cfg.Model.Name, b.profile.Scores(),
		perSample); b.profile.Prediction != nil {
		b.log().Info(b.profile.Prediction.String())
		b.SaveProfile()
	}
}
