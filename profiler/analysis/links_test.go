package analysis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// The folder of a run may be untrusted. A link in it must not make the reader open a file outside the folder.
func TestNoLinkLeadsOutOfARun(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, "[tracking]\nmlflow = \"secret\"\n")
	for _, name := range []string{resolvedFile, "logs/" + runtime.FileName(0), "logs/" + runtime.EventsFile,
		"logs/" + balanceFile} {
		dir, _ := pair(t)
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, path); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "escapes") {
			t.Errorf("%s: got %v, want an error because the link leads out", name, err)
		}
		if name == resolvedFile { // the file with the settings is optional
			continue
		}
		if _, err := LogDir(dir); err == nil || !strings.Contains(err.Error(), "lead out") {
			t.Errorf("%s: got %v, want an error because the link leads out", name, err)
		}
	}
	for _, name := range []string{"meta.yaml", "params/optimizer.lr", "metrics/loss", "tags/mlflow.user"} {
		dir := mlflowRun(t, "foreign", map[string]string{"meta.yaml": "status: 3\n", "metrics/loss": "1 2 3\n",
			"params/a": "1", "tags/a": "1"})
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, path); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTrial(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "lead out") {
			t.Errorf("%s: got %v, want an error because the link leads out", name, err)
		}
	}
	dir := mlflowRun(t, "foreign", map[string]string{"meta.yaml": "status: 3\n", "metrics/loss": "1 2 3\n",
		"other/x": "", "params/a": "1", "tags/a": "1"})
	for link, target := range map[string]string{"other/loss": secret, "metrics/train": "../other"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadTrial(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "link to a folder") {
		t.Errorf("got %v, want an error, because a link leads out by a folder within", err)
	}
}
