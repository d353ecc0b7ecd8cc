package mlflow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// steps returns the steps of a metric in the file store.
func steps(t *testing.T, runs, name string) (all []int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(runs, "*", "*", "metrics", name))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: got files %q, %v, want one", name, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		step, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil || len(fields) != 3 {
			t.Fatalf("%s: got line %q", name, line)
		}
		all = append(all, step)
	}
	return all
}

func TestAFolderGetsEachPointOnce(t *testing.T) {
	dir, runs := t.TempDir(), filepath.Join(t.TempDir(), "mlruns")
	for last := int64(3000); last <= 9000; last += 3000 {
		fillSpool(t, dir, last == 3000, 10, last)
		if _, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Target: runs}); err != nil {
			t.Fatal(err)
		}
		// The test simulates a crash after points were written: the recorded position is that of the first batch, and
		// the last line is incomplete.
		files, err := filepath.Glob(filepath.Join(runs, "*", "*", "tags", SentTag))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if err := os.WriteFile(files[0], []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
		metric := strings.Replace(files[0], filepath.Join("tags", SentTag), filepath.Join("metrics", "train", "loss"),
			1)
		info, err := os.Stat(metric)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(metric, info.Size()-3); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Target: runs}); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "train/loss", steps(t, runs, "train/loss"), 10, 9000)
	checkSteps(t, "eval/loss", steps(t, runs, "eval/loss"), 50, 9000)
}

func TestRunsOfAnExperimentShareItsFolder(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "mlruns")
	for range 3 {
		dir := t.TempDir()
		fillSpool(t, dir, true, 10, 100)
		if _, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Target: runs}); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(runs)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got experiments %v, %v, want one", entries, err)
	}
	if all, err := filepath.Glob(filepath.Join(runs, "1", "*", "meta.yaml")); err != nil || len(all) != 3 {
		t.Errorf("got runs %q, %v, want three", all, err)
	}
}

func TestNamesDoNotLeadOutOfTheFolder(t *testing.T) {
	f := &folder{path: t.TempDir(), last: map[string]int64{}}
	for _, name := range []string{"../x", "/etc/x", "a/../../x", `..\x`, ""} {
		if err := f.artifact(context.Background(), "1/run", name, nil); !errors.As(err, new(*Refused)) {
			t.Errorf("%q: got %v, want a refusal", name, err)
		}
	}
}
