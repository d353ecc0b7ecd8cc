package observe

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Timed must complete a record with the times of its own step on every rank. If these times remain unknown, it must
// keep the times from the reports of the step.
func TestTimedCompletesRecords(t *testing.T) {
	const ms = time.Millisecond
	dir := t.TempDir()
	o := &Records{run: &assembly.Run{Process: &session.Session{Cfg: &config.Config{}}}, interval: 1}
	for rank := range 2 {
		w, _, err := runtime.Open(filepath.Join(dir, runtime.FileName(rank)), runtime.Options{Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		o.writers = append(o.writers, w)
	}
	timed := &Timed{Observers: Observers{o}, records: o}
	ranks := make([]train.RankStep, 2) // like the training loop, the test reuses the memory of its record
	step := func(n int64, before time.Duration) {
		ranks[0].Times = replica.StepTimes{Communication: time.Duration(n) * ms}
		ranks[1].Times = replica.StepTimes{Communication: before * ms} // these are the times of the previous step
		timed.StepDone(&train.StepRecord{Step: n, Took: 10 * ms, Ranks: ranks, Time: time.Now()})
	}
	known := func(n time.Duration) {
		timed.Known([]replica.StepTimes{{Communication: n * ms}, {Communication: 100 * n * ms}})
	}
	step(1, 0)
	known(1)
	step(2, 100)
	known(2) // the times arrive before an evaluation
	known(2) // the times arrive with the next report
	step(3, 200)
	timed.RolledBack(2)
	known(3)
	step(3, 300)
	known(3)
	step(4, 300)
	timed.Saving() // a rank was lost, so no times arrive
	for rank, want := range [][]time.Duration{{1, 2, 3, 4}, {100, 200, 300, 300}} {
		if err := o.writers[rank].Flush(); err != nil {
			t.Fatal(err)
		}
		var got []time.Duration
		if _, err := runtime.EachMetric(context.Background(), filepath.Join(dir, runtime.FileName(rank)),
			func(r *runtime.Record) { got = append(got, r.Communication/ms) }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("rank %d: got communication times %v ms, want %v", rank, got, want)
		}
	}
}
