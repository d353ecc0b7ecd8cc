package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/tuning"
)

// tune chooses the number of micro-batches and the size of gradient buckets, where the configuration leaves the choice
// to the program. All ranks make the same choice. For each candidate it trains a separate replica, so the state of the
// run does not change.
func (tr *training) tune(ctx context.Context) error {
	tr.run.Data.Cache.Set(0) // the timed candidates read images without the cache; GrantCache later gives it memory
	o, err := tr.run.ReplicaOptions()
	if err != nil {
		return err
	}
	t := &tuner{tr: tr, log: tr.process.Opts.LogOf(logs.ComponentDevice)}
	if t.peers = o.Peers; t.peers != nil {
		t.buckets = t.peers.CapBytes == 0
	}
	if tr.process.Cfg.Train.GradAccumulation == 0 {
		if t.micro, err = t.free(o); err != nil {
			return err
		}
	}
	if !t.micro && !t.buckets {
		return nil
	}
	if err := t.recall(ctx); err != nil {
		return err
	}
	if t.known {
		t.logChoice("timed_earlier")
		t.apply()
		return nil
	}
	resumed := t.choice.MicroBatches != 0
	if err := t.time(ctx); err != nil {
		return fmt.Errorf("time micro-batches and buckets: %w", err)
	}
	t.logChoice("timed")
	if !resumed { // the cache must not get a number from a checkpoint, which may not be the fastest on these machines
		t.keep()
	}
	t.apply()
	return nil
}

// free reports whether the program may choose the number of micro-batches. A model with batch statistics gets one
// micro-batch, because its result depends on this number.
func (t *tuner) free(o replica.Options) (bool, error) {
	name, err := o.BatchStatistics()
	if err != nil || name == "" {
		return err == nil, err
	}
	if t.tr.rank.Team.Leads() {
		t.log.Info(fmt.Sprintf("train.grad_accumulation = 0 selects 1 micro-batch: %s and other statistics are computed over a micro-batch, so another number would change the result",
			name))
	}
	return false, nil
}

// recall looks for an earlier choice. It prefers the number of micro-batches in the checkpoint from which the run
// resumes to the cached choice. Rank 0 sends the result to the other ranks.
func (t *tuner) recall(ctx context.Context) error {
	found := struct {
		Known  bool          `json:"known"`
		Choice tuning.Choice `json:"choice"`
	}{}
	find := func() error {
		t.key = t.describe()
		cache := tuningCache()
		if cache != nil {
			choice, known, err := cache.Load(t.key)
			if err == nil && known && !slices.Contains(t.possible(), choice.MicroBatches) {
				err = fmt.Errorf("got %d micro-batches, want one of %v", choice.MicroBatches, t.possible())
			}
			if err != nil {
				t.log.Warn("the cached sizes of micro-batches and buckets cannot be used; the run times them again",
					"error", err)
			} else {
				found.Known, found.Choice = known, choice
			}
		}
		state, err := experiment.Peek(t.tr.run.RunOptions())
		if err != nil || !t.micro {
			return nil // there is no checkpoint, or openRun will report the error
		}
		if n := assembly.MicroBatchesOf(&state); slices.Contains(t.possible(), n) && n != found.Choice.MicroBatches {
			found.Known, found.Choice = !t.buckets, tuning.Choice{MicroBatches: n}
		}
		return nil
	}
	err := t.tr.rank.Team.Send(ctx, "sizes of micro-batches and buckets", &found, find)
	t.known, t.choice = found.Known, found.Choice
	return err
}

// alsoTimed lists tables and keys of the configuration that change the times, the memory or the possible numbers of
// micro-batches. The settings of the step-time curves (assembly.CurveSetting) are not repeated here.
var alsoTimed = []string{"augment", "device", "ema", "data.group_by_length", "optimizer.momentum",
	"train.norms_interval", "train.recompute"}

// describe returns all settings on which the times depend, as the key of the cache.
func (t *tuner) describe() string {
	c := t.tr.process.Cfg
	text := []string{assembly.CurveSetting(c, t.tr.rank.Precision.String()),
		fmt.Sprintf("batch %d, micro-batches %d, memory %d GiB", c.Data.BatchSize, c.Train.GradAccumulation,
			t.tr.rank.TotalMemory()>>30)}
	for _, s := range c.Settings() {
		table, _, _ := strings.Cut(s.Key, ".")
		if slices.Contains(alsoTimed, s.Key) || slices.Contains(alsoTimed, table) {
			text = append(text, s.Key+"="+s.Value)
		}
	}
	for rank, own := range t.tr.rank.Types {
		text = append(text, fmt.Sprintf("rank %d: %s %s", rank, own.Device, own.Type))
	}
	if t.peers != nil {
		p := c.Parallel
		text = append(text,
			fmt.Sprintf("machines %v, %s, shared memory %s, overlap %v, wire %s, buckets of %v MiB, shares %v",
				t.tr.rank.Team.Hosts(), p.Backend, p.SharedMemory, p.Overlap, p.WireDType, p.BucketCapMB,
				c.Balance.FixedShares))
	}
	return strings.Join(append(text, version.Text()), "; ")
}

// tuningCache returns the cache of earlier choices, or nil if the user has no cache folder.
func tuningCache() *tuning.Cache {
	dir, err := parts.UserCache("tuning")
	if err != nil {
		return nil
	}
	return tuning.Open(dir)
}

// apply makes the run use the choice.
func (t *tuner) apply() {
	c := t.tr.process.Cfg
	if t.micro {
		c.Train.SetMicroBatches(t.choice.MicroBatches)
		t.tr.run.Loading.Accumulation = t.choice.MicroBatches
	}
	if t.buckets {
		t.tr.bucketBytes = t.choice.CapBytes
	}
}

// logChoice logs, on rank 0, the choice with the times of all candidates.
func (t *tuner) logChoice(how string) {
	if !t.tr.rank.Team.Leads() {
		return
	}
	c := t.choice
	if t.micro {
		n := c.MicroBatches
		of := "1 micro-batch"
		if n > 1 {
			of = fmt.Sprintf("%d micro-batches", n)
		}
		t.log.Info(fmt.Sprintf("train.grad_accumulation = 0 selects %s of %s", of,
			show.Count(t.tr.process.Cfg.Data.BatchSize/n, "sample")), how, list(c.Micro))
	}
	if t.buckets {
		t.log.Info("parallel.bucket_cap_mb = 0 selects "+capName(c.CapBytes), how, list(c.Buckets))
	}
}

// list formats timed candidates as "1: 95.1 ms, 2: 88.0 ms".
func list(timed []tuning.Timed) string {
	if len(timed) == 0 {
		return "by the run that it resumes"
	}
	var texts []string
	for _, c := range timed {
		text := fmt.Sprintf("%s: %.3g ms", c.Name, 1e3*c.Seconds)
		if c.Seconds == 0 {
			text = c.Name + ": does not fit"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// keep stores the choice in the cache, on rank 0 only.
func (t *tuner) keep() {
	if !t.tr.rank.Team.Leads() {
		return
	}
	err := errors.New("there is no cache folder: neither XDG_CACHE_HOME nor HOME is set")
	if cache := tuningCache(); cache != nil {
		err = cache.Store(t.key, t.choice)
	}
	if err != nil {
		t.log.Warn("the choice of micro-batches and buckets is not cached, so each run times them again", "error", err)
	}
}
