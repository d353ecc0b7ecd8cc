package analysis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Run is a finished training run that was read from its folder.
type Run struct {
	Name, Dir string // Name is the name of the folder

	Policy, Model, Dataset, Scenario string
	Seed                             string
	Ranks                            int
	BatchSize                        int64    // global batch size
	Solo                             []string // scenario in which each rank runs alone; nil if unknown
	Devices                          []string // device that each rank represents; nil if unknown
	Machine                          string   // name of the machine; "" if unknown
	Settings                         map[string]string
	Result                           experiment.Result

	Steps     []Step
	Decisions []Decision // decisions of the balancer; empty without logs/balance.jsonl

	Damaged []string // descriptions of unreadable parts of the files, one sentence each
	Pauses  int      // number of pauses between recorded steps; see runtime.StepSpan
	Partial int      // number of steps left out because some rank has no record of them

	segment runtime.Segment // the segment to which Steps, Decisions and judged belong
	judged  judged
}

// Skipped is a folder that is not used, and the reason.
type Skipped struct{ Dir, Reason string }

// Collection contains the runs below a folder.
type Collection struct {
	Root    string
	Runs    []*Run // sorted by name of the folder
	Skipped []Skipped
}

// Read reads all runs below root. It skips runs that cannot be used, and stores the reasons. It returns an error only
// if root cannot be listed.
func Read(root string) (Collection, error) {
	all := Collection{Root: root}
	info, err := os.Stat(root)
	if err != nil {
		return all, fmt.Errorf("read runs: %w", err)
	}
	if !info.IsDir() {
		return all, fmt.Errorf("read runs: %s is a file, want the folder that holds the runs", root)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if path == root {
				return fmt.Errorf("read runs: %w", err)
			}
			all.Skipped = append(all.Skipped, Skipped{path, err.Error()})
			return nil
		}
		if !entry.IsDir() {
			return nil
		}
		if path != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if !looksLikeRun(path) {
			return nil
		}
		run, err := Load(path)
		if err != nil {
			all.Skipped = append(all.Skipped, Skipped{path, err.Error()})
			return fs.SkipDir
		}
		if within, err := filepath.Rel(root, path); err == nil && within != "." {
			run.Name = strings.ReplaceAll(within, string(filepath.Separator), "__") // makes the name unique
		}
		all.Runs = append(all.Runs, run)
		return fs.SkipDir
	})
	return all, err
}

func looksLikeRun(dir string) bool {
	return slices.ContainsFunc([]string{benchmarkFile, resolvedFile, "results/result.json"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// Load reads one run. It returns an error for a run that did not end successfully.
func Load(dir string) (*Run, error) {
	run := &Run{Name: filepath.Base(dir), Dir: dir}
	var err error
	run.Result, err = experiment.ReadResult(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("not finished: it has no results/result.json")
	}
	if err != nil {
		return nil, err
	}
	if run.Result.Superseded {
		return nil, fmt.Errorf("not finished: its result is of an earlier process, which ended after step %d",
			run.Result.Steps)
	}
	if run.Result.Exit != 0 {
		return nil, fmt.Errorf("ended with exit code %d: %s", run.Result.Exit, run.Result.Error)
	}
	if run.Settings, err = readSettings(dir); err != nil {
		return nil, err
	}
	if err := run.identify(); err != nil {
		return nil, err
	}
	logs, err := logDirOf(dir, run.Settings)
	if err != nil {
		return nil, err
	}
	if err := run.readSteps(logs); err != nil {
		return nil, err
	}
	return run, run.readDecisions(filepath.Join(logs, balanceFile))
}

// identify reads the properties of the run from its settings and from benchmark.json. Both files must agree.
func (r *Run) identify() error {
	r.Policy, r.Seed, r.Ranks = r.Settings["balance.policy"], r.Settings["experiment.seed"], max(r.Result.Ranks, 1)
	r.Model, r.Dataset, r.BatchSize = r.Result.Model, r.Result.Dataset, r.Result.BatchSize
	if fixed := r.Settings["balance.fixed_shares"]; fixed != "" && fixed != "[]" {
		r.Policy = "fixed " + fixed
	}
	r.Scenario = fmt.Sprintf("ranks-%d", r.Ranks)
	b, err := readBenchmark(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, pair := range []struct {
		what      string
		got, want any
	}{
		{"policy", b.Policy, r.Settings["balance.policy"]}, {"model", b.Model, r.Model},
		{"batch_size", b.BatchSize, r.BatchSize},
		{"seed", fmt.Sprint(b.Seed), r.Seed}, {"ranks", b.Ranks, r.Ranks},
	} {
		if pair.got != pair.want && !(pair.what == "ranks" && b.Ranks == 0) {
			// Ranks = 0 means one rank per device of the machine
			return fmt.Errorf("%s does not belong to this run: %s: got %v, want %v", benchmarkFile, pair.what, pair.got,
				pair.want)
		}
	}
	for _, list := range [][]string{b.Solo, b.Devices} {
		if len(list) != 0 && len(list) != r.Ranks {
			return fmt.Errorf("%s: got a list of %d entries, want %d, one per rank", benchmarkFile, len(list), r.Ranks)
		}
	}
	r.Scenario, r.Solo, r.Devices, r.Machine = b.Scenario, b.Solo, b.Devices, b.Machine
	return nil
}

// readSteps reads the records of all ranks.
func (r *Run) readSteps(logs string) error {
	happened, err := eventsOf(filepath.Join(logs, runtime.EventsFile))
	if err != nil {
		return err
	}
	if r.segment, err = segmentOf(context.Background(), logs, happened.starts); err != nil {
		return err
	}
	records := make([][]runtime.Record, r.Ranks)
	for rank := range records {
		path := filepath.Join(logs, runtime.FileName(rank))
		var damaged int
		var err error
		if records[rank], damaged, err = runtime.ReadMetrics(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("no metrics of rank %d of %d (%s): the run needs profile.enabled = true", rank,
					r.Ranks, path)
			}
			return err
		}
		records[rank] = slices.DeleteFunc(records[rank], func(m runtime.Record) bool {
			return m.Iteration <= r.segment.After
		})
		if err := possible(records[rank], r.BatchSize); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if damaged > 0 {
			r.Damaged = append(r.Damaged, ignored(path, damaged))
		}
	}
	r.Steps, r.Pauses, r.Partial = align(records)
	if len(r.Steps) == 0 {
		return fmt.Errorf("no step with records of all %d ranks in %s", r.Ranks, logs)
	}
	return nil
}

// possible returns an error if no run can have written these records.
func possible(records []runtime.Record, batch int64) error {
	for i := range records {
		m := &records[i]
		if min(m.DataLoading, m.Forward, m.Backward, m.Optimizer) < 0 || m.BatchSize < 0 || batch > 0 &&
			m.BatchSize > batch {
			return fmt.Errorf("iteration %d: got a negative time, or %d samples of a batch of %d", m.Iteration,
				m.BatchSize, batch)
		}
	}
	return nil
}

const balanceFile = "balance.jsonl"

// Decision is one decision of the balancer, a line of logs/balance.jsonl. Unknown values are NaN.
type Decision struct {
	Step          int64
	StepSeconds   float64            // measured time of a step, s
	ShareOfOracle float64            // throughput as a fraction of that with the best shares, 0…1
	Lost          map[string]float64 // lost time of a step by cause, s
	EqualSeconds  float64            // time of a step with equal shares on the fitted curves, s
	EqualUnknown  string             // why EqualSeconds is unknown
	Disagreement  string             // why ShareOfOracle and the times of the ranks differ; "": they do not
	Noise         runtime.Cause

	ShareOfOracleLow, ShareOfOracleHigh float64 // 90 % interval of ShareOfOracle; NaN if not recorded
	EqualLow, EqualHigh                 float64 // 90 % interval of EqualSeconds; NaN if not recorded
}

// readDecisions reads logs/balance.jsonl. The file is optional.
func (r *Run) readDecisions(path string) error {
	damaged := 0
	r.judged = judged{previous: r.segment.After}
	err := regular.EachLine(path, func(text []byte) error {
		line, ok := runs.ParseDecision(text)
		if !ok {
			damaged++
			return nil
		}
		if line.Step <= r.segment.After {
			return nil
		}
		d := Decision{Step: line.Step, EqualUnknown: line.EqualWhy, Disagreement: printable(line.Differs),
			StepSeconds:   unknown,
			Noise:         runtime.Cause{Name: line.NoiseWhy, Rank: -1, Evidence: printable(line.NoiseSign)},
			ShareOfOracle: unknown, ShareOfOracleLow: unknown, ShareOfOracleHigh: unknown,
			EqualSeconds: unknown, EqualLow: unknown, EqualHigh: unknown,
			Lost: map[string]float64{}}
		for to, from := range map[*float64]*float64{&d.StepSeconds: line.Seconds, &d.ShareOfOracle: line.OfOracle,
			&d.ShareOfOracleLow: line.Low, &d.ShareOfOracleHigh: line.High,
			&d.EqualSeconds: line.Equal, &d.EqualLow: line.EqualLow, &d.EqualHigh: line.EqualHigh} {
			if from != nil {
				*to = *from
			}
		}
		if line.Noisy != nil {
			d.Noise.Rank = *line.Noisy
		}
		for cause, seconds := range line.Lost {
			if seconds != nil {
				d.Lost[cause] = *seconds
			}
		}
		r.Decisions = append(r.Decisions, d)
		r.judged.add(d.Step, line.Ranks)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read decisions: %w", err)
	}
	if damaged > 0 {
		r.Damaged = append(r.Damaged, ignored(path, damaged))
	}
	return nil
}
