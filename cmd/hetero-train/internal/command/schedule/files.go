package schedule

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/scheduler/ingest"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// readFile opens a file and calls parse. Errors in the contents of the file get the exit code of damaged data.
func readFile(what, path string, parse func(r io.Reader) error) error {
	f, _, err := regular.Open(path)
	if err != nil {
		return exit.Usagef("%s: %w", what, err)
	}
	defer f.Close()
	return damaged(what, parse(f))
}

// damaged adds the exit code of damaged data to an error in the contents of a file. An error that already has an exit
// code keeps it.
func damaged(what string, err error) error {
	if err == nil || exit.Code(err) != exit.Unexpected {
		return err
	}
	return exit.With(exit.Data, fmt.Errorf("%s: %w", what, err))
}

// readTables reads files with tables. Each text is a path, or TABLE=PATH for a CSV file. Without TABLE=, the table has
// the name of the CSV file without the suffix .csv.
func readTables(what string, texts []string) (*ingest.Data, error) {
	var sources []ingest.Source
	var faults []error
	for i, text := range texts {
		if slices.Contains(texts[:i], text) {
			faults = append(faults, exit.Usagef("%s: got %s twice, want each file once", what, text))
			continue
		}
		one, f, err := openTable(text)
		if err != nil {
			faults = append(faults, exit.Usagef("%s: %w", what, err))
			continue
		}
		defer f.Close()
		sources = append(sources, one)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	d, err := ingest.Read(sources...)
	return d, damaged(what, err)
}

func openTable(text string) (ingest.Source, io.Closer, error) {
	path, table := text, ingest.Table("")
	if name, rest, found := strings.Cut(text, "="); found && slices.Contains(ingest.Tables(), ingest.Table(name)) {
		path, table = rest, ingest.Table(name)
	}
	format, err := ingest.FormatOf(path)
	if err != nil {
		return ingest.Source{}, nil, err
	}
	switch {
	case format != ingest.CSV && table != "":
		return ingest.Source{}, nil,
			fmt.Errorf("%s: got a table before a file that is not CSV, want the file alone: its rows name their tables",
				text)
	case format == ingest.CSV && table == "":
		base := filepath.Base(path)
		table = ingest.Table(strings.ToLower(base[:len(base)-len(".csv")]))
		if !slices.Contains(ingest.Tables(), table) {
			return ingest.Source{}, nil,
				fmt.Errorf(
					"%s: got a CSV file without a table, want TABLE=FILE, or a file with the name of a table: %s", text,
					tableList(".csv"))
		}
	}
	f, _, err := regular.Open(path)
	if err != nil {
		return ingest.Source{}, nil, err
	}
	return ingest.Source{Name: path, Format: format, Table: table, Reader: f}, f, nil
}

// tableList lists the names of all tables. It appends ending to each name.
func tableList(ending string) string {
	var names []string
	for _, t := range ingest.Tables() {
		names = append(names, string(t)+ending)
	}
	return strings.Join(names, ", ")
}

// fill replaces missing values by those of --default, and returns which values it replaced. If no row lacks the value
// of a --default, fill returns an error, because the flag would have no effect.
func fill(command string, d *ingest.Data, texts []string) ([]ingest.Missing, error) {
	var defaults []ingest.Default
	var faults []error
	for _, text := range texts {
		one, err := ingest.ParseDefault(text)
		switch {
		case err != nil:
			faults = append(faults, exit.Usagef("%s: --default: %w", command, err))
		case slices.ContainsFunc(defaults, func(o ingest.Default) bool {
			return o.Table == one.Table && o.Column == one.Column
		}):
			faults = append(faults, exit.Usagef("%s: --default: got %s.%s twice, want each figure once", command,
				one.Table, one.Column))
		default:
			defaults = append(defaults, one)
		}
	}
	filled := d.Fill(defaults)
	for _, one := range defaults {
		if !slices.ContainsFunc(filled, func(m ingest.Missing) bool {
			return m.Table == one.Table && m.Column == one.Column
		}) {
			faults = append(faults,
				exit.Usagef("%s: --default %s.%s: no row lacks this figure, so the value would have no effect", command,
					one.Table, one.Column))
		}
	}
	return filled, errors.Join(faults...)
}

// namedSpeeds is a table of speeds with the names of kinds and GPU types. It implements jobqueue.Table.
type namedSpeeds struct {
	*workload.Table
	kinds, types []string
}

// Kind implements jobqueue.Table.
func (n *namedSpeeds) Kind(name string) (int, bool) { return place(n.kinds, name) }

// Type implements jobqueue.Table.
func (n *namedSpeeds) Type(name string) (int, bool) { return place(n.types, name) }

// place returns the index of a name. It ignores case, because queue systems write V100 as v100.
func place(names []string, name string) (int, bool) {
	i := slices.IndexFunc(names, func(o string) bool { return strings.EqualFold(o, name) })
	return i, i >= 0
}

// readSpeeds reads a table of speeds: a .json file in Gavel's form, or a file with the tables gpu_types, kinds and
// speeds.
func readSpeeds(what, path string) (*namedSpeeds, error) {
	out := new(namedSpeeds)
	if strings.EqualFold(filepath.Ext(path), ".json") {
		err := readFile(what, path, func(r io.Reader) error {
			g, err := ingest.ReadGavel(path, r)
			if err != nil {
				return err
			}
			out.Table, out.types = g.Speeds, g.Types
			for _, k := range g.Kinds {
				out.kinds = append(out.kinds, k.Name)
			}
			return nil
		})
		return out, err
	}
	d, err := readTables(what, []string{path})
	if err != nil {
		return nil, err
	}
	if d.Speeds == nil {
		return nil,
			exit.With(exit.Data, fmt.Errorf("%s: %s: got no speeds, want the tables gpu_types, kinds and speeds", what,
				path))
	}
	out.Table = d.Speeds
	for _, k := range d.Workload.Kinds {
		out.kinds = append(out.kinds, k.Name)
	}
	for _, t := range d.Cluster.Types {
		out.types = append(out.types, t.Name)
	}
	return out, nil
}
