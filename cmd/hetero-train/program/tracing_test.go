package program

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// traceEvent is one event of a timeline, in the format of trace viewers.
type traceEvent struct {
	Name     string
	Ph       string
	Ts, Dur  json.Number
	Pid, Tid int
	Args     struct{ Kernel, Operands, Pass string }
}

// ns converts a time from µs to whole ns.
func ns(t *testing.T, us json.Number) int64 {
	t.Helper()
	whole, fraction, _ := strings.Cut(us.String(), ".")
	v, err := strconv.ParseInt(whole+(fraction + "000")[:3], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// readTimeline reads a timeline. It checks that events of a thread do not partly overlap, because viewers require this.
func readTimeline(t *testing.T, path string) (events []traceEvent) {
	t.Helper()
	var file struct {
		TraceEvents []traceEvent
		OtherData   struct{ Explained float64 }
	}
	if err := json.Unmarshal(clitest.ReadFile(t, path), &file); err != nil {
		t.Fatal(err)
	}
	if x := file.OtherData.Explained; x <= 0 || x > 1 {
		t.Errorf("explained: got %v, want a share", x)
	}
	threads := map[[2]int][]traceEvent{}
	for _, e := range file.TraceEvents {
		if e.Ph == "X" {
			events = append(events, e)
			threads[[2]int{e.Pid, e.Tid}] = append(threads[[2]int{e.Pid, e.Tid}], e)
		}
	}
	for _, list := range threads {
		slices.SortStableFunc(list, func(a, b traceEvent) int {
			return cmp.Or(cmp.Compare(ns(t, a.Ts), ns(t, b.Ts)), cmp.Compare(ns(t, b.Dur), ns(t, a.Dur)))
		})
		for i, e := range list[1:] {
			if before := list[i]; ns(t, e.Ts) < ns(t, before.Ts)+ns(t, before.Dur) {
				t.Errorf("%q begins at %v us, in %q of %v us from %v us on", e.Name, e.Ts, before.Name, before.Dur,
					before.Ts)
			}
		}
	}
	return events
}

func TestTracedStepsTrainAsOthersDo(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	set := []string{"train.steps=20", "parallel.ranks=2", "balance.fixed_shares=[5, 3]", "train.grad_accumulation=1"}
	finish(t, p.command(filepath.Join(dir, "plain"), set...), 0).check(t, exit.Done, "")
	want := resultOf(t, filepath.Join(dir, "plain", "run"))
	const missed = "profile.trace_step = 5 has no effect: the run trained this step before"
	if e := finish(t, p.command(filepath.Join(dir, "plain"), append(slices.Clone(set), "profile.trace_step=5")...),
		0); e.code != exit.Done || !strings.Contains(e.stdout, missed) {
		t.Errorf("a finished run: got exit code %d and\n%s", e.code, e.stdout)
	}
	finish(t, p.command(filepath.Join(dir, "plain"),
		append(slices.Clone(set), "profile.trace_step=5", "train.steps=22")...), 0).check(t, exit.Done, missed)
	for _, c := range []struct {
		name  string
		first string
		steps []string
	}{
		{"a window", "5", []string{"step 5", "step 6", "step 7"}},
		{"a window that the run's end cuts", "19", []string{"step 19", "step 20"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			output := filepath.Join(dir, c.first)
			finish(t,
				p.command(output, append(slices.Clone(set), "profile.trace_step="+c.first, "profile.trace_steps=3")...),
				0).check(t, exit.Done, "")
			if got := resultOf(t, filepath.Join(output, "run")); got.Loss != want.Loss {
				t.Errorf("final loss: got %v, want that of the run without a timeline, %v", got.Loss, want.Loss)
			}
			events := readTimeline(t, filepath.Join(output, "run", "logs", observe.TraceFile))
			for rank := range 2 {
				var steps []string
				found := map[string]int{}
				for _, e := range events {
					if e.Pid != rank {
						continue
					}
					switch timeline.Track(e.Tid - 1) {
					case timeline.Steps:
						steps = append(steps, e.Name)
					case timeline.Stream:
						found[e.Args.Pass+" "+e.Args.Kernel]++
						if e.Args.Kernel != "" && !strings.Contains(e.Args.Operands, " -> ") {
							t.Errorf("launch %q: got operands %q", e.Name, e.Args.Operands)
						}
					case timeline.Gradients:
						found[e.Name]++
					}
				}
				if !slices.Equal(steps, c.steps) {
					t.Errorf("rank %d: got steps %q, want %q", rank, steps, c.steps)
				}
				for _, what := range []string{"forward conv2d", "backward conv2d_diff_weights", "optimizer adamw",
					"bucket 0"} {
					if found[what] == 0 || found[what]%len(c.steps) != 0 {
						t.Errorf("rank %d: got %d spans of %q in %d steps", rank, found[what], what, len(c.steps))
					}
				}
			}
		})
	}
}
