package assembly

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

// JoinTeam joins the other ranks. Settings, data and program must be equal on all ranks.
func (j *Run) JoinTeam(ctx context.Context) (err error) {
	if j.Opts.Place.WorldSize <= 1 {
		j.Opts.LogOf(logs.ComponentBalancer).Debug("no compute score is measured, because a run of one rank needs none")
		return nil
	}
	return j.Meet(ctx, j.facts())
}

// local lists the settings that may differ between ranks.
var local = []string{"device.", "data.path", "data.val_path", "data.class_names", "data.shard_cache_mb", "data.cache_dir", "data.workers", "data.download", "experiment.output_dir", "experiment.log_dir", "train.resume", "parallel.", "profile.", "lab."}

// facts returns the values that must be equal on all ranks.
func (j *Run) facts() []rendezvous.Fact {
	var facts []rendezvous.Fact
	for _, s := range j.Cfg.Settings() {
		if !slices.ContainsFunc(local, func(prefix string) bool { return strings.HasPrefix(s.Key, prefix) }) {
			value := s.Value
			if text, err := strconv.Unquote(value); err == nil { // a string, which the message quotes again
				value = text
			}
			facts = append(facts, rendezvous.Fact{Name: s.Key, Value: value})
		}
	}
	samples, evaluated := j.Data.Counts()
	p := j.Cfg.Parallel
	return append(facts, []rendezvous.Fact{
		{Name: "program", Value: version.Text()},
		{Name: "communication", Value: fmt.Sprintf("gradients as %s, buckets of %v MiB, overlap %v, shared memory %s, time-out %v s", p.WireDType, p.BucketCapMB, p.Overlap, p.SharedMemory, p.TimeoutSeconds)},
		{Name: "data", Value: fmt.Sprintf("%s, %d training and %d evaluation samples, classes %q, fingerprint %q", j.Data.Name, samples, evaluated, j.Data.Classes(), j.fingerprint())},
		{Name: "trace", Value: fmt.Sprintf("%d steps from step %d on", j.Cfg.Profile.TraceSteps, j.Cfg.Profile.TraceStep)},
		{Name: "weather", Value: j.Opts.Lab.Fact()},
	}...)
}

// fingerprint returns what identifies the content of the data set, "" if the numbers of samples do.
func (j *Run) fingerprint() string {
	if t := j.Data.Tokens; t != nil {
		return t.Identity
	}
	return j.Data.Fingerprint
}
