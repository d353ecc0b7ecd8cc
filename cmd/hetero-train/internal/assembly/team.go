package assembly

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
)

// JoinTeam performs the rendezvous with the other ranks. It returns an error if the settings, the data or the programs
// of the ranks differ.
func (r *Run) JoinTeam(ctx context.Context) (err error) {
	if r.Process.Opts.Assignment.WorldSize <= 1 {
		return nil
	}
	if err := r.Rank.Meet(ctx, r.facts()); err != nil {
		return err
	}
	return r.compareData(ctx)
}

// local lists the settings that may differ between ranks. An entry that ends with a dot is the name of a table.
var local = []string{"device.", "data.path", "data.val_path", "data.vocab_file", "data.class_names",
	"data.shard_cache_mb", "data.object_cache_mb", "data.cache_dir", "data.workers", "data.download", "experiment.output_dir",
	"experiment.log_dir", "train.resume", "checkpoint.upload", "parallel.", "profile.", "lab.", "dashboard.", "metrics.", "notify.",
	"tracking."}

// facts returns the values that must be equal on all ranks.
func (r *Run) facts() []rendezvous.Fact {
	// the program is the first fact, because another program explains the other differences
	facts := []rendezvous.Fact{{Name: "program", Value: version.Source()}}
	for _, s := range r.Process.Cfg.Settings() {
		if !slices.ContainsFunc(local, func(prefix string) bool { return strings.HasPrefix(s.Key, prefix) }) {
			value := s.Value
			if text, err := strconv.Unquote(value); err == nil {
				// remove the quotes of strings, because the error message adds quotes
				value = text
			}
			facts = append(facts, rendezvous.Fact{Name: s.Key, Value: value})
		}
	}
	samples, evaluated := r.Data.Counts()
	p := r.Process.Cfg.Parallel
	return append(facts, []rendezvous.Fact{
		{
			Name: "communication",
			Value: fmt.Sprintf(
				"gradients as %s, buckets of %v MiB, overlap %v, shared memory %s, time-out %v s, encryption %v",
				p.WireDType, p.BucketCapMB, p.Overlap, p.SharedMemory, p.TimeoutSeconds, p.Encrypt)},
		{Name: "data", Value: fmt.Sprintf("%s, %d training and %d evaluation samples, classes %q%s", r.Data.Name,
			samples, evaluated, r.Data.Classes(), r.fingerprint())},
		{Name: "trace", Value: fmt.Sprintf("%d steps, starting at step %d", r.Process.Cfg.Profile.TraceSteps,
			r.Process.Cfg.Profile.TraceStep)},
		{Name: "weather", Value: r.Process.Opts.Lab.Fact()},
	}...)
}

// fingerprint returns ", fingerprint " and the digest of the data set. It does so only for data sets of other modules
// that provide no sample names or contents to compare. For all other data sets it returns "".
func (r *Run) fingerprint() string {
	digest := ""
	switch t := r.Data.Tokens; {
	case t != nil && r.Data.Content == nil:
		digest = t.Identity
	case t == nil && !r.Data.NamesSamples():
		digest = r.Data.Fingerprint
	}
	if digest == "" {
		return ""
	}
	return fmt.Sprintf(", fingerprint %q", digest)
}
