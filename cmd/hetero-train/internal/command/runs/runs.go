package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

const long = `List the runs of a folder, newest first: state, model, data, policy, ranks, steps, loss, best evaluation, speed and time.

PATTERN selects runs by name: * stands for any characters, ? for one, [abc] for one of several. A run is listed if it matches one of
the patterns, one of the states of --state, and all settings of --where. The command only reads files.

Exit codes:
  0  done, also if no run matches
  2  bad flags, there is no such folder, or no run has the key of --where or --key`

const example = `  hetero-train runs
  hetero-train runs 'lr-*' --key optimizer.lr
  hetero-train runs --state failed,crashed
  hetero-train runs --where model.name=resnet50 --where optimizer.lr=0.1
  hetero-train runs --json | jq -r 'select(.best_eval > 0.9) | .name'`

var kinds = []string{string(runs.Running), string(runs.Finished), string(runs.Stopped), string(runs.Failed),
	string(runs.Crashed), string(runs.Unknown)}

// flags are the flags of command runs.
type flags struct {
	input  string
	states []string
	where  []string
	keys   []string
	json   bool
}

// New returns the command that lists runs.
func New(a *cli.App) *cobra.Command {
	f := new(flags)
	cmd := &cobra.Command{Use: "runs [PATTERN...]", Short: "List runs, and select some by name, state or setting",
		Long: long, Example: example}
	cmd.Flags().StringVar(&f.input, "input-dir", "experiments", "`folder` that contains the runs")
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "list only runs in these `states`: "+strings.Join(kinds, ", "))
	cmd.Flags().StringArrayVar(&f.where, "where", nil, "list only runs with this setting, `KEY=VALUE`; repeatable")
	cmd.Flags().StringSliceVar(&f.keys, "key", nil, "also show the values of these `keys` of the configuration")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object per run and line")
	cmd.RunE = func(cmd *cobra.Command, patterns []string) error { return f.run(cmd.Context(), a, patterns) }
	return cmd
}

// row is one run in the list.
type row struct {
	runs.Summary
	Settings map[string]string `json:"settings,omitempty"` // values of the keys that --key selects
}

func (f *flags) run(ctx context.Context, a *cli.App, patterns []string) error {
	wanted, err := f.check(patterns)
	if err != nil {
		return err
	}
	folder, err := runs.OpenFolder(f.input)
	if errors.Is(err, fs.ErrNotExist) {
		return exit.NoRuns("runs", f.input)
	}
	if err != nil {
		return exit.Usagef("runs: %w", err)
	}
	defer folder.Close() // no error: the folder was only read
	list, err := folder.List(ctx)
	if err != nil {
		return exit.Usagef("runs: %w", err)
	}
	rows, err := f.choose(a, folder, list.Runs, patterns, wanted)
	if err != nil {
		return err
	}
	if !f.json {
		return f.print(a.Env.Stdout, list, rows)
	}
	for _, r := range rows {
		if err := show.JSON(a.Env.Stdout, r); err != nil {
			return err
		}
	}
	return nil
}

// setting is a condition of --where.
type setting struct{ key, value string }

// check returns the settings of --where, or an error for a flag with an invalid value.
func (f *flags) check(patterns []string) (wanted []setting, err error) {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return nil, exit.Usagef("runs: pattern %q: %w", p, err)
		}
	}
	for _, s := range f.states {
		if !slices.Contains(kinds, s) {
			return nil, exit.Usagef("runs: --state: got %q, want %s", s, strings.Join(kinds, ", "))
		}
	}
	for _, w := range f.where {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" {
			return nil, exit.Usagef("runs: --where: got %q, want KEY=VALUE, for example optimizer.lr=0.1", w)
		}
		wanted = append(wanted, setting{key, strings.Trim(value, `"'`)})
	}
	return wanted, nil
}

// choose returns the runs that match all conditions.
func (f *flags) choose(a *cli.App, folder *runs.Folder, list []runs.Summary, patterns []string, wanted []setting) (
	[]row, error) {
	rows, known := []row{}, map[string]bool{}
	for _, s := range list {
		r := row{Summary: s}
		if len(wanted)+len(f.keys) > 0 {
			values, err := folder.Settings(s.Name)
			if err != nil { // show the run in the table without settings
				a.WarnOf(err.Error())
			}
			for key := range values {
				known[key] = true
			}
			if slices.ContainsFunc(wanted, func(w setting) bool { return !has(values, w) }) {
				continue
			}
			r.Settings = map[string]string{}
			for _, key := range f.keys {
				if v, ok := values[key]; ok {
					r.Settings[key] = v
				}
			}
		}
		named := len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
			ok, _ := path.Match(p, s.Name) // no error: check has already refused invalid patterns
			return ok
		})
		if named && (len(f.states) == 0 || slices.Contains(f.states, string(s.State.Kind))) {
			rows = append(rows, r)
		}
	}
	return rows, f.unknownKey(list, wanted, known)
}

func has(values map[string]string, w setting) bool {
	v, ok := values[w.key]
	return ok && runs.Canonical(v) == runs.Canonical(w.value)
}

// unknownKey returns an error if no run has a key of the flags.
func (f *flags) unknownKey(list []runs.Summary, wanted []setting, known map[string]bool) error {
	keys := slices.Clone(f.keys)
	for _, w := range wanted {
		keys = append(keys, w.key)
	}
	for _, key := range keys {
		if len(list) == 0 || known[key] {
			continue
		}
		near := config.Closest(key, slices.Sorted(maps.Keys(known)))
		if near != "" {
			near = "; nearest: " + near
		}
		return exit.Usagef("runs: no run of %s has the key %s%s", f.input, key, near)
	}
	return nil
}

// print writes the table of runs.
func (f *flags) print(w io.Writer, list runs.Listing, rows []row) error {
	if len(rows) == 0 {
		text := fmt.Sprintf("no runs in %s", f.input)
		if n := len(list.Runs); n > 0 {
			text = fmt.Sprintf("none of the %s of %s matches", show.Count(n, "run"), f.input)
		}
		fmt.Fprintln(w, text)
	} else if err := f.table(w, rows); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Damaged != "" {
			fmt.Fprintf(w, "%s: %s\n", r.Name, show.Foreign(r.Damaged))
		}
	}
	for _, name := range list.Nested {
		fmt.Fprintf(w, "the folder %s contains runs; list them with --input-dir %s\n", show.Foreign(name),
			path.Join(f.input, show.Foreign(name)))
	}
	if list.Left > 0 {
		fmt.Fprintf(w, "%s more were not read, because there are too many\n", show.Count(list.Left, "folder"))
	}
	return nil
}

func (f *flags) table(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := append([]string{"run", "state", "model", "data", "policy", "ranks", "steps", "loss", "best evaluation",
		"samples/s"}, f.keys...)
	fmt.Fprintln(t, strings.Join(append(head, "updated"), "\t"))
	for _, r := range rows {
		cells := []string{r.Name, string(r.State.Kind), show.Foreign(show.OrDash(r.Model)),
			show.Foreign(show.OrDash(r.Dataset)), show.Foreign(show.OrDash(r.Policy)),
			fmt.Sprint(r.Ranks), fmt.Sprint(r.Steps), show.Figure("%.4f", r.Loss), r.best(),
			show.Figure("%.1f", r.SamplesPerSecond)}
		for _, key := range f.keys {
			cell := "-"
			if value, ok := r.Settings[key]; ok {
				cell = show.Foreign(value) // an empty text becomes two quotes
			}
			cells = append(cells, cell)
		}
		cells = append(cells, time.UnixMilli(r.Updated).Format("2006-01-02 15:04:05"))
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// best formats the best evaluation.
func (r row) best() string {
	value := float64(r.BestEval)
	if show.Figure("%g", value) == "-" {
		return "-"
	}
	return task.TextOf(r.BestEvalMetric, value)
}
