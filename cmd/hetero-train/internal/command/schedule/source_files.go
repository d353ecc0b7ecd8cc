package schedule

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/ingest"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// read reads the files, or creates the default setup. The list generated names the flags of generated jobs, which have
// no effect with files.
func (s *source) read(a *cli.App, generated ...string) error {
	if err := s.checkFlags(generated); err != nil {
		return err
	}
	measured := 0
	for _, set := range []bool{s.speeds != "", len(s.traces) > 0, s.gpus != ""} {
		if set {
			measured++
		}
	}
	switch {
	case len(s.input) > 0:
		return s.readInput()
	case measured == 0:
		s.setup = workload.Default()
		return nil
	case measured == 3:
		return s.readGavel(a)
	}
	return exit.Usagef("%s: got some of --speeds, --trace and --gpus, want all three or none", s.command)
}

// checkFlags refuses flags that would have no effect.
func (s *source) checkFlags(generated []string) error {
	measured := []string{"speeds", "trace", "gpus"}
	refuse := func(with string, names []string) error {
		for _, name := range names {
			if s.flags.Changed(name) {
				return exit.Usagef("%s: got --%s with %s, want one of the two", s.command, name, with)
			}
		}
		return nil
	}
	switch {
	case len(s.input) > 0:
		return refuse("--input", append(measured, generated...))
	case len(s.defaults) > 0:
		return exit.Usagef("%s: --default needs --input: it sets figures that the input files lack", s.command)
	case len(s.traces) > 0:
		return refuse("--trace", generated)
	}
	return nil
}

// readInput reads --input. All its jobs form one list.
func (s *source) readInput() error {
	d, err := readTables(s.command+": --input", s.input)
	if err != nil {
		return err
	}
	if _, err := fill(s.command, d, s.defaults); err != nil {
		return err
	}
	if err := d.Check(); err != nil {
		return exit.With(exit.Data, fmt.Errorf("%s: --input: %w", s.command, err))
	}
	s.setup = &workload.Setup{Cluster: &d.Cluster, Kinds: d.Workload.Kinds, Speeds: d.Speeds}
	s.listed = []*scheduler.Workload{&d.Workload}
	return nil
}

func (s *source) readGavel(a *cli.App) error {
	var g *ingest.Gavel
	err := readFile(s.command+": --speeds", s.speeds, func(f io.Reader) (err error) {
		g, err = ingest.ReadGavel(s.speeds, f)
		return err
	})
	faults := []error{err}
	var kinds []scheduler.Kind // nil: the kinds of jobs are unknown
	var cluster *scheduler.Cluster
	if err == nil {
		kinds = g.Kinds
		cluster, err = s.cluster(g.Types)
		faults = append(faults, err)
	}
	lists := make([][]scheduler.Job, len(s.traces))
	for i, path := range s.traces {
		if slices.Contains(s.traces[:i], path) {
			faults = append(faults, exit.Usagef("%s: --trace: got %s twice, want each file once", s.command, path))
			continue
		}
		faults = append(faults, readFile(s.command+": --trace", path, func(f io.Reader) (err error) {
			lists[i], err = ingest.GavelTrace(path, f, kinds)
			return err
		}))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	for i, path := range s.traces {
		d, err := g.Data(*cluster, lists[i])
		if err != nil {
			return fmt.Errorf("%s: --trace %s: %w", s.command, path, err)
		}
		d.Fill(ingest.Unlimited()) // Gavel's files lack memory and checkpoint times; a trace has only numbers of GPUs
		s.setup = &workload.Setup{Cluster: &d.Cluster, Kinds: d.Workload.Kinds, Speeds: d.Speeds}
		if err := s.list(a, path, d); err != nil {
			return err
		}
	}
	return nil
}

// list adds those jobs of a trace that fit on the cluster.
func (s *source) list(a *cli.App, path string, d *ingest.Data) error {
	w, jobs := &d.Workload, d.Workload.Jobs
	out, first := d.Unplaceable()
	w.Jobs = ingest.Without(jobs, out)
	switch {
	case len(w.Jobs) == 0:
		return exit.With(exit.Data,
			fmt.Errorf("%s: --trace %s: the cluster can hold none of the %d jobs; the first one: %w", s.command, path,
				len(jobs), first))
	case len(out) > 0:
		a.WarnOf(fmt.Sprintf("%s: leaving out %d of %d jobs that the cluster cannot hold; the first one: %v", path,
			len(out), len(jobs), first))
	}
	s.listed = append(s.listed, w)
	return nil
}

// cluster returns the cluster that --gpus describes.
func (s *source) cluster(types []string) (*scheduler.Cluster, error) {
	all := make([]scheduler.GPUType, len(types))
	for t, name := range types {
		all[t] = scheduler.GPUType{Name: name, Memory: math.MaxFloat64, Bandwidth: math.NaN(), Compute: math.NaN()}
	}
	var specs []workload.MachineSpec
	type part struct{ typ, perMachine int }
	var parts []part
	for _, text := range strings.Split(s.gpus, ",") {
		name, count, ok := strings.Cut(strings.TrimSpace(text), "=")
		number, per, split := strings.Cut(count, "/")
		if !split {
			per = "4"
		}
		const most = 100_000
		n, err := strconv.Atoi(number)
		each, err2 := strconv.Atoi(per)
		t := slices.Index(types, name)
		switch {
		case !ok || err != nil || err2 != nil || n < 1 || n > most || each < 1 || each > most:
			return nil,
				exit.Usagef(
					"%s: --gpus: got %q, want TYPE=COUNT or TYPE=COUNT/GPUS_PER_MACHINE with counts from 1 to %d",
					s.command, text, most)
		case t < 0:
			return nil, exit.Usagef("%s: --gpus: unknown type of GPU: got %q, want one of %s, the types in %s",
				s.command, name, strings.Join(types, ", "), s.speeds)
		}
		for _, other := range parts {
			if other == (part{t, each}) {
				return nil,
					exit.Usagef(
						"%s: --gpus: got type %s with %d GPUs per machine twice, want it once with the sum of the GPUs",
						s.command, name, each)
			}
		}
		parts = append(parts, part{t, each})
		spec := workload.MachineSpec{Count: n / each, Type: t, GPUs: each, Network: math.NaN()}
		if spec.Count > 0 {
			specs = append(specs, spec)
		}
		if n%each > 0 {
			spec.Count, spec.GPUs = 1, n%each
			specs = append(specs, spec)
		}
	}
	return workload.NewCluster(all, specs...), nil
}

// latestChange is the latest accepted time of a change, in seconds. At later times, the simulated clock would lose
// fractions of a second.
const latestChange = 1e15

// readChanges reads the changes of --change. A change removes GPUs, or adds removed ones again. Both begin at the end
// of the GPUs of the type.
func (s *source) readChanges() error {
	c := s.setup.Cluster
	gone := make([]bool, len(c.GPUs))
	last := 0.0
	for _, text := range s.changes {
		sign, rest := text[:min(1, len(text))], strings.TrimLeft(text, "+-")
		digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		name, when, ok := strings.Cut(rest[max(0, digits):], "@")
		n, err := strconv.Atoi(rest[:max(0, digits)])
		at, err2 := strconv.ParseFloat(when, 64)
		typ := slices.IndexFunc(c.Types, func(t scheduler.GPUType) bool { return t.Name == name })
		switch {
		case sign != "+" && sign != "-" || !ok || digits < 1 || err2 != nil && !errors.Is(err2, strconv.ErrRange) ||
			math.IsNaN(at):
			return exit.Usagef(
				"%s: --change: got %q, want +COUNTtype@SECONDS or -COUNTtype@SECONDS, for example -4%s@3600", s.command,
				text, c.Types[0].Name)
		case err != nil || n < 1:
			return exit.Usagef("%s: --change %s: got %s GPUs, want at least 1 and at most the GPUs of the type",
				s.command, text, rest[:digits])
		case !(at >= 0 && at <= latestChange):
			return exit.Usagef("%s: --change %s: got a time of %s s, want a number from 0 to %g", s.command, text, when,
				latestChange)
		case at < last:
			return exit.Usagef(
				"%s: --change %s: got a change at %v s after a change at %v s, want changes in chronological order",
				s.command, text, at, last)
		case typ < 0:
			return exit.Usagef("%s: --change %s: the cluster has no type of GPU %q; want one of %s", s.command, text,
				name, typesText(c.Types))
		}
		last = at
		want := n
		for g := len(c.GPUs) - 1; g >= 0 && n > 0; g-- {
			if c.GPUs[g].Type == typ && gone[g] == (sign == "+") {
				gone[g] = sign == "-"
				s.events = append(s.events, simulate.Change{At: at, GPU: g, Up: sign == "+"})
				n--
			}
		}
		switch {
		case n > 0 && sign == "+":
			return exit.Usagef("%s: --change %s: got %s of type %s, but earlier changes removed %d", s.command, text,
				show.Count(want, "GPU"), name, want-n)
		case n > 0:
			return exit.Usagef("%s: --change %s: got %s of type %s, but the cluster has %d at this time", s.command,
				text, show.Count(want, "GPU"), name, want-n)
		}
	}
	return nil
}

// typesText lists the names of types.
func typesText(types []scheduler.GPUType) string {
	names := make([]string, len(types))
	for t := range types {
		names[t] = types[t].Name
	}
	return strings.Join(names, ", ")
}

// readPrices reads the prices of --price. It returns an error if a GPU type of the cluster has no price.
func (s *source) readPrices() error {
	if s.price == "" {
		return nil
	}
	types := s.setup.Cluster.Types
	prices := make([]float64, len(types))
	for t := range prices {
		prices[t] = math.NaN()
	}
	for _, part := range strings.Split(s.price, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || !(v >= 0 && v <= 1e9) {
			return exit.Usagef("%s: --price: got %q, want TYPE=NUMBER with a number from 0 to 1e9", s.command, part)
		}
		known := false
		for t := range types {
			if types[t].Name != name {
				continue
			}
			if known = true; !math.IsNaN(prices[t]) {
				return exit.Usagef("%s: --price: got type %s twice, want each type once", s.command, name)
			}
			prices[t] = v
		}
		if !known {
			return exit.Usagef("%s: --price: unknown type of GPU: got %q, want one of %s", s.command, name,
				typesText(types))
		}
	}
	for _, g := range s.setup.Cluster.GPUs {
		if math.IsNaN(prices[g.Type]) {
			return exit.Usagef("%s: --price: got no price of type %s, want a price of each type of the cluster: %s",
				s.command, types[g.Type].Name, typesText(types))
		}
	}
	s.prices = prices
	return nil
}
