package program

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
)

func TestASummaryThatCannotBeWrittenInThatFolderIsForTheUserToMend(t *testing.T) {
	dir, _ := trainSmall(t)
	summary := filepath.Join(dir, "logs", observe.SummaryFile)
	if err := errors.Join(os.RemoveAll(summary), os.MkdirAll(filepath.Join(summary, "in the way"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"analyze", dir}); o.code != exit.Usage {
		t.Errorf("got exit code %d, want %d: %s", o.code, exit.Usage, o.stderr)
	}
}
