package assembly

import (
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

// Foreign describes a foreign run: a run whose steps another program computes. Such a run has no replica and no data,
// so only the settings for which Applies returns true have an effect.
type Foreign struct {
	Script experiment.Script
	// Setting describes all conditions on which the time of a step depends, except the device. Examples are the model,
	// the element type and the version of the other program.
	Setting string
	Report  task.Report

	TFLOPS, Copy measure.Figure // measured speed of this rank, TFLOP/s and GB/s; 0: not measured
	Curve        divide.Curve   // measured step times of this rank; nil: not measured

	notes []string // sentences that Note has added
}

// Note adds a sentence about the numbers of the run to its results.
func (f *Foreign) Note(text string) { f.notes = append(f.notes, text) }

// foreignKeys are the settings that affect a foreign run. An entry that ends with a dot is the name of a table.
var foreignKeys = []string{"balance.", "experiment.", "metrics.", "notify.", "profile.", "tracking.",
	"train.log_interval", "train.grad_accumulation",
	"data.batch_size", "data.dataset", "data.workers", "model.name"}

// withoutReplica are settings of the tables in foreignKeys that have no effect, because they need a replica.
var withoutReplica = []string{"experiment.seed", "profile.trace_steps", "profile.trace_step", "profile.histograms"}

// Applies reports whether a setting has an effect on a foreign run.
func Applies(key string) bool {
	return !slices.Contains(withoutReplica, key) && slices.ContainsFunc(foreignKeys, func(k string) bool {
		return key == k || strings.HasSuffix(k, ".") && strings.HasPrefix(key, k)
	})
}
