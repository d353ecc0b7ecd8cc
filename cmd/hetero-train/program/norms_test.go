package program

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
)

func TestNormsOfParametersAreWrittenOnceAStepAlsoAfterAResume(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	path := filepath.Join(dir, "run", "logs", observe.NormsFile)
	for _, steps := range []int{13, 21} { // the checkpoint of step 13 is later than the last line, that of step 10
		finish(t, p.command(dir, fmt.Sprint("train.steps=", steps), "train.norms_interval=5"), 0).check(t, exit.Done,
			"")
	}
	var at []int64
	for line := range strings.Lines(string(clitest.ReadFile(t, path))) {
		var l observe.NormsLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		at = append(at, l.Step)
		if got := l.Params["fc.weight"]; len(l.Params) != 14 || !(got.Gradient > 0) || !(got.Weight > 0) ||
			!(got.Update > 0) {
			t.Errorf("step %d: got %d parameters, fc.weight %+v, want 14 with norms above 0", l.Step, len(l.Params),
				got)
		}
	}
	if !slices.Equal(at, []int64{5, 10, 15, 20}) {
		t.Errorf("got lines of steps %v, want 5, 10, 15, 20", at)
	}
}
