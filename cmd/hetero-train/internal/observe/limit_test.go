package observe

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// quietLines opens a new file of lines, without a log, and closes it at the end of the test.
func quietLines(t *testing.T, name string) (l *StepLines, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	l, err := OpenLines(nil, name, path, -1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

func TestAFileOfLinesStaysBelowItsLimit(t *testing.T) {
	const most = 20_000
	l, path := quietLines(t, "events.jsonl")
	l.Limit(most)
	l.Add(runtime.Event{Step: 0, Start: &runtime.StartEvent{Ranks: 2}})
	l.Add(runtime.Event{Step: 1, Length: &runtime.LengthEvent{Steps: 5000}})
	for step := int64(1); step <= 5000; step++ {
		l.Add(runtime.Event{Step: step, Bottleneck: &runtime.BottleneckEvent{Text: "compute-bound"}})
		if step%500 == 0 {
			l.Add(runtime.Event{Step: step, Evaluation: &runtime.EvaluationEvent{}})
		}
		if info, err := os.Stat(path); err != nil || info.Size() > most+1000 {
			t.Fatalf("step %d: %d bytes, %v, want at most %d", step, info.Size(), err, most)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var starts, lengths, evaluations, verdicts, last int64
	err := regular.EachLine(path, func(line []byte) error {
		var e runtime.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Step < last {
			t.Errorf("step %d after step %d", e.Step, last)
		}
		last = e.Step
		switch {
		case e.Start != nil:
			starts++
		case e.Length != nil:
			lengths++
		case e.Evaluation != nil:
			evaluations++
		case e.Bottleneck != nil:
			verdicts++
		}
		return nil
	})
	if err != nil || starts != 1 || lengths != 1 || evaluations != 10 || verdicts < 20 || last != 5000 {
		t.Errorf("got %d starts, %d lengths, %d evaluations, %d verdicts, last step %d, %v", starts, lengths,
			evaluations, verdicts, last, err)
	}
}

// Lines that are normally kept must be thinned, too, if they fill the file. Only starts and lengths are always kept. If
// they fill the file, the program must not copy the file for each further line.
func TestLinesThatUsuallyStayAreLimitedToo(t *testing.T) {
	const most = 20_000
	l, path := quietLines(t, "balance.jsonl")
	l.Limit(most)
	for step := 1; step <= 3000; step++ {
		l.Add(map[string]any{"step": step, "changed": true, "reason": "performance variance detected"})
		if info, err := os.Stat(path); err != nil || info.Size() > most+1000 {
			t.Fatalf("step %d: %d bytes, %v", step, info.Size(), err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestPointsOfALongRunBecomeRarer(t *testing.T) {
	points := func(interval, steps int64) (n int64) {
		for s := interval; s <= steps; {
			if s%stride(interval, s) == 0 {
				n++
			}
			s += interval
		}
		return n
	}
	if got, want := points(10, 10*mostDensePoints), int64(mostDensePoints); got != want {
		t.Errorf("got %d points, want %d", got, want)
	}
	if got, want := points(1, 64*mostDensePoints), int64(mostDensePoints*(1+6)); got > want || got < want/2 {
		t.Errorf("got %d points for 64 times the steps, want at most %d", got, want)
	}
	if got := stride(10, 1); got != 10 {
		t.Errorf("the stride of the first step is %d", got)
	}
}
