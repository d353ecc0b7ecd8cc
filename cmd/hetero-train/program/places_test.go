package program

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// A flag for a file or folder must refuse the same texts as its key, and must create no file.
func TestFlagsForPlacesRefuseTextsThatCouldNameTwo(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"train", "--output-dir=~/runs"},
			`--output-dir: experiment.output_dir: only a shell replaces ~ (got "~/runs"`},
		{[]string{"train", "--log-dir", "s3://bucket/logs"}, "--log-dir: experiment.log_dir: a path cannot be a URL"},
		{[]string{"train", "--master-addr", "10.0.0.1:29500"}, `--master-addr: parallel.master_addr: contains a port (got "10.0.0.1:29500", want "10.0.0.1" here and 29500 in parallel.master_port)`},
		{[]string{"dashboard", "--address", "http://127.0.0.1:8501"},
			`want "127.0.0.1" here and 8501 in dashboard.port`},
		{[]string{"tracking", "sync", "run", "--mlflow", "127.0.0.1:5000"},
			`--mlflow: may be a server or a folder (got "127.0.0.1:5000", want "http://127.0.0.1:5000" for the server`},
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

// Each flag whose name indicates a file or folder must refuse a URL.
func TestAllFlagsForPlacesAreChecked(t *testing.T) {
	place := regexp.MustCompile(`(^|-)(dir|output|file|vocab|csv|trace|input|speeds|profile|network)$`)
	checked := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		var names []string
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			kind := f.Value.Type()
			if _, key := f.Value.(*cli.KeyFlag); !key && (kind == "string" || kind == "stringArray") &&
				place.MatchString(f.Name) {
				names = append(names, f.Name)
			}
		})
		for _, name := range names {
			fresh, _, err := newRoot(&cli.App{Env: session.Environment{Catalog: parts.BuiltinCatalog}}).Find(
				strings.Fields(cmd.CommandPath())[1:])
			if err != nil {
				t.Fatal(err)
			}
			if err := fresh.Flags().Set(name, "s3://bucket/x"); err != nil {
				t.Fatal(err)
			}
			if checked++; cli.CheckPaths(fresh) == nil {
				t.Errorf("%s --%s: a URL is accepted", cmd.CommandPath(), name)
			}
		}
	}
	visit(newRoot(&cli.App{Env: session.Environment{Catalog: parts.BuiltinCatalog}}))
	if checked < 15 {
		t.Errorf("checked %d flags, want those of all commands", checked)
	}
}
