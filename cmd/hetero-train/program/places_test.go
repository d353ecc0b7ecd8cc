package program

import (
	"os"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// A flag for a file or folder refuses the texts that its key refuses, and nothing is created.
func TestFlagsForPlacesRefuseTextsThatCouldNameTwo(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"train", "--output-dir=~/runs"}, `--output-dir: experiment.output_dir: only a shell replaces ~ (got "~/runs"`},
		{[]string{"train", "--log-dir", "s3://bucket/logs"}, "--log-dir: experiment.log_dir: a path cannot be a URL"},
		{[]string{"train", "--master-addr", "10.0.0.1:29500"}, `--master-addr: parallel.master_addr: contains a port (got "10.0.0.1:29500", want "10.0.0.1" here and 29500 in parallel.master_port)`},
		{[]string{"dashboard", "--address", "http://127.0.0.1:8501"}, `want "127.0.0.1" here and 8501 in dashboard.port`},
		{[]string{"tracking", "sync", "run", "--mlflow", "127.0.0.1:5000"}, `--mlflow: may be a server or a folder (got "127.0.0.1:5000", want "http://127.0.0.1:5000" for the server`},
		{[]string{"analyze", "--input-dir=~/runs"}, "--input-dir: only a shell replaces ~"},
		{[]string{"profile", "--output-dir=~/profiles"}, "--output-dir: only a shell replaces ~"},
		{[]string{"-c", "~/run.toml"}, "--config: only a shell replaces ~"},
	} {
		if o := execute(c.args); o.code != exit.Usage || !strings.Contains(o.stderr, c.says) || o.cfg != nil {
			t.Errorf("%q: got exit code %d and\n%swant 2 and %q", c.args, o.code, o.stderr, c.says)
		}
	}
	if created, err := os.ReadDir(folder); err != nil || len(created) > 0 {
		t.Errorf("created %v, %v; want nothing", created, err)
	}
}
