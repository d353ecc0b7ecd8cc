package program

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wallClock lists the files that derive a value from the wall clock, and the purpose of the value. All other code uses
// differences of time.Now, which are monotonic: setting the clock changes no time-out and no duration. If you add a
// file, make sure that no decision of a running program depends on the value.
var wallClock = map[string]string{
	"cmd/hetero-train/internal/command/schedule/advise.go":  "how long jobs of another program have run",
	"cmd/hetero-train/internal/jobqueue/kubernetes/read.go": "likewise",
	"cmd/hetero-train/internal/command/schedule/undo.go":    "when a change was undone, for people",
	"cmd/hetero-train/internal/command/schedule/rotate.go":  "which changes are in both logs, by their times",
	"cmd/hetero-train/internal/observe/exporter.go":         "when a step or a checkpoint was, for readers on other machines",
	"cmd/hetero-train/internal/observe/tracking.go":         "when a point was, for readers in MLflow",
	"cmd/hetero-train/internal/observe/tracing.go":          "when a trace began, for its reader",
	"engine/timeline/recorder.go":                           "when a trace began: its times count from then",
	"cmd/hetero-train/internal/command/doctor/checks.go":    "when a certificate expires",
	"cmd/hetero-train/internal/command/doctor/doctor.go":    "differences between the clocks of machines",
	"cmd/hetero-train/internal/command/profile/show.go":     "when a profile was made, for its reader",
	"cmd/hetero-train/internal/command/runs/runs.go":        "when a run was updated, for its reader",
	"cmd/hetero-train/internal/process/certificate.go":      "when a certificate expires, and whether its file has changed",
	"cmd/hetero-train/internal/rebalance/scores.go":         "likewise",
	"cmd/hetero-train/internal/run/bridge_steps.go":         "when a step of a script ended, for readers of the records",
	"profiler/profiles/cache.go":                            "when figures were measured, for their reader",
	"profiler/analysis/trial_mlflow.go":                     "when a run wrote its newest point, for people",
	"engine/cluster/rendezvous/join.go":                     "a deadline that has passed",
	"engine/handshake/encrypt.go":                           "the dates of certificates",
	"engine/data/layout/kept.go":                            "the age of the list of another machine, which is removed after 30 days",
	"engine/data/layout/stamp.go":                           "the age of a folder, which tells whether its time proves that it has not changed",
	"engine/experiment/lock.go":                             "since when a run holds its folder, for people",
	"engine/data/openfiles/openfiles.go":                    "the time of a file, which tells whether it has changed",
	"engine/data/stored/cache.go":                           "times of the blocks of the cache, of which the least recently used are removed",
	"engine/data/stored/stored.go":                          "the time of a file identifies its contents",
	"engine/objects/s3test/s3test.go":                       "time of an object, for tests",
	"profiler/measure/links.go":                             "a deadline that has passed",
	"profiler/runtime/record.go":                            "when a step ended, for readers of the file",
	"profiler/runtime/parse.go":                             "likewise",
	"profiler/runtime/mark.go":                              "the time of a file, which tells whether it has changed",
	"profiler/runs/index.go":                                "the age of a file, which tells whether another program still writes it",
	"profiler/runs/summary.go":                              "the time of a file, which tells whether it has changed",
	"profiler/runs/communication.go":                        "when steps ended, for readers of the page",
	"profiler/runs/files.go":                                "when a file was written, for the age of a run that another machine trains",
	"profiler/runs/state.go":                                "when a run was written last, for its readers",
	"profiler/trace/board.go":                               "the name of a file",
	"profiler/trace/event.go":                               "when an event was, for readers of the file",
}

// stripping lists the methods and functions that discard the monotonic time of their operand.
var stripping = []string{"Unix", "UnixNano", "UnixMilli", "UnixMicro", "UTC", "Local", "ModTime", "Parse",
	"ParseInLocation", "Date"}

// This static check of the sources covers row M6 of docs/reliability.md.
func TestTableOfWhatFollowsTheWallClock(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "build" ||
			d.Name() == "third_party" || d.Name() == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			if followsWallClock(t, path) {
				found = append(found, name)
			}
		case strings.HasSuffix(name, ".cc") || strings.HasSuffix(name, ".h"):
			text, err := os.ReadFile(path)
			if at := nativeWallClock.Find(text); at != nil || err != nil {
				t.Errorf("%s: uses %s, which follows the wall clock (%v)", name, at, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if wallClock[name] == "" {
			t.Errorf("%s follows the wall clock: measure with time.Now, time.Since and time.Time.Sub alone, or say in wallClock what for",
				name)
		}
	}
	for name := range wallClock {
		if !slices.Contains(found, name) {
			t.Errorf("%s does not follow the wall clock any more: take it off the list", name)
		}
	}
}

var nativeWallClock = regexp.MustCompile(
	`system_clock|CLOCK_REALTIME|\bgettimeofday\b|\btime\((NULL|nullptr|0)\)|high_resolution_clock`)

// followsWallClock reports whether a file calls a function of stripping on a time: as a function of package time, on
// the result of time.Now(), or as a method that only times have.
func followsWallClock(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(`"time"`)) && !bytes.Contains(text, []byte("ModTime")) {
		return false
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := method.X.(*ast.Ident)
		inTime := of != nil && of.Name == "time"
		switch name := method.Sel.Name; {
		case name == "Parse" || name == "ParseInLocation" || name == "Date":
			found = found || inTime
		case name == "Truncate" || name == "Round": // counts only for a time, because durations have these methods, too
			now, isCall := method.X.(*ast.CallExpr)
			selector, _ := ast.Unparen(method.X).(*ast.SelectorExpr)
			if isCall {
				selector, _ = now.Fun.(*ast.SelectorExpr)
			}
			found = found || selector != nil && (selector.Sel.Name == "Now" || selector.Sel.Name == "UTC")
		case slices.Contains(stripping, name):
			found = true
		}
		return true
	})
	return found
}
