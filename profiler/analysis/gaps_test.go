package analysis

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// If the records of a rank lack some steps, the figures of these steps exclude this rank. The summary must report this.
func TestASummaryNamesStepsWithoutARank(t *testing.T) {
	all := steadyRecords(50, 8, 1)
	huge := all[10]
	huge.BatchSize = 1_000_000_000
	for name, c := range map[string]struct {
		records []runtime.Record
		balance string
		want    []string
	}{
		"all steps": {records: all},
		"a gap": {records: slices.Concat(all[:10], all[15:]), want: []string{
			"rank_1_metrics.json: no record of 5 steps from step 11 on; the figures of these steps lack this rank"}},
		"two lines change": {records: slices.Concat(all[:10], []runtime.Record{all[11], all[10]}, all[12:]),
			want: []string{
				"rank_1_metrics.json: no record of 1 steps from step 11 on; the figures of these steps lack this rank"}},
		"an early end": {records: all[:20], want: []string{
			"rank_1_metrics.json: ends at step 20, before the last 30 steps of rank 0, which the figures leave out"}},
		"no step": {records: nil,
			want: []string{"rank_1_metrics.json: no record of the 50 steps of rank 0; the figures lack this rank"}},
		"a negative fraction": {records: all, balance: `{"step":5,"step_seconds":1,"share_of_oracle":-0.5}` + "\n",
			want: []string{"balance.jsonl: 1 damaged line ignored"}},
		"a share above the global batch": {records: slices.Concat(all[:10], []runtime.Record{huge}, all[11:]),
			want: []string{"rank_1_metrics.json: 1 damaged line ignored",
				"rank_1_metrics.json: no record of 1 steps from step 11 on; the figures of these steps lack this rank"}},
		"damaged decision": {records: all, balance: "{\"step\": 5, \"step_seconds\": \"fast\"}\n",
			want: []string{"balance.jsonl: 1 damaged line ignored"}},
	} {
		dir := t.TempDir()
		writeRecords(t, dir, steadyRecords(50, 24, 1), c.records)
		writeFile(t, filepath.Join(dir, "logs", runtime.EventsFile),
			`{"step":0,"time":"2026-01-02T03:04:05Z","start":{"ranks":2,"batch_size":32}}`+"\n")
		if c.balance != "" {
			if err := os.WriteFile(filepath.Join(dir, "logs", balanceFile), []byte(c.balance), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Summarize(dir, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range s.Damaged { // the name of a file may include its folder
			s.Damaged[i] = filepath.Base(s.Damaged[i])
		}
		if !slices.Equal(s.Damaged, c.want) {
			t.Errorf("%s: got %q, want %q", name, s.Damaged, c.want)
		}
	}
}
