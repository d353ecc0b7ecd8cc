package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/ingest"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/uncertain"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// source contains the flags of simulate and compare that select the cluster, the jobs and the speeds.
type source struct {
	policies
	arrivals workload.Arrivals
	speeds   string
	traces   []string
	gpus     string
	input    []string
	defaults []string
	changes  []string
	unsure   estimates
	price    string
	prices   []float64      // price of a GPU hour, by GPU type; nil: unknown
	flags    *pflag.FlagSet // flags of the command

	setup  *workload.Setup
	listed []*scheduler.Workload // job lists of --trace or --input; nil: jobs are generated
	events []simulate.Change
}

// sourceLong is the part of the help that describes the flags of add.
const sourceLong = `

Without files, the cluster has 8 Nvidia Volta, 4 Nvidia Turing and 4 AMD Radeon GPUs, and the jobs are a generated mix of simulations,
machine learning and data processing, with speeds from a formula. With --speeds, the speeds are measured: the file has the form of Gavel's
simulation_throughputs.json. --gpus then defines the cluster, and --trace gives the jobs: files in the form of Gavel's traces.

With --input, cluster, jobs and speeds come from tables in TOML, CSV or JSON lines (docs/scheduling.md, "Input files"). A CSV file has the
name of its table, such as jobs.csv, or is given as TABLE=FILE. If the files lack figures, the program does not guess them:
--default sets them.` + estimatesLong

func (s *source) add(flags *pflag.FlagSet) {
	s.addNetwork(flags)
	flags.IntVar(&s.arrivals.Jobs, "jobs", 200, "number of jobs to generate")
	flags.Float64Var(&s.arrivals.Load, "load", 0.8,
		"arriving work as a fraction of the capacity of the cluster; above 1, the queue grows")
	flags.Float64Var(&s.arrivals.Burst, "burst", 1,
		"mean number of jobs that arrive at the same time; 1: jobs arrive one by one")
	flags.Float64Var(&s.arrivals.Surge, "surge", 1,
		"factor on the arrival rate of machine-learning jobs in the middle third of the run; 1: no surge")
	s.unsure.add(flags)
	s.addFiles(flags, "each file replaces one seed")
	flags.StringArrayVar(&s.changes, "change", nil, "change of the cluster, repeatable: `-4volta@3600` removes 4 GPUs of type volta after 3600 s, +4volta@7200 adds them again")
}

// addPrices adds the flag --price.
func (s *source) addPrices(flags *pflag.FlagSet) {
	flags.StringVar(&s.price, "price", "",
		"prices of one GPU hour, for example `volta=2.48,turing=0.35,radeon=0.9`; the results then have the cost of a job")
}

// addFiles adds the flags that name files. The text several is the part of a help text that says what several traces
// mean.
func (s *source) addFiles(flags *pflag.FlagSet, several string) {
	s.flags = flags
	flags.StringVar(&s.speeds, "speeds", "", "JSON `FILE` with measured speeds; needs --trace and --gpus")
	flags.StringArrayVar(&s.traces, "trace", nil, "`FILE` with jobs; repeatable, "+several)
	flags.StringVar(&s.gpus, "gpus", "",
		"cluster of --speeds, for example `v100=36,p100=36,k80=36`; 4 GPUs per machine, or v100=36/8 for 8 per machine")
	flags.StringArrayVar(&s.input, "input", nil, "`FILE` (.toml, .csv, .jsonl) with tables of the cluster, jobs and speeds; repeatable, all files together form one input")
	flags.StringArrayVar(&s.defaults, "default", nil,
		"value for a figure that rows of --input lack, for example `jobs.cpus=4`; repeatable")
}

// open prepares cluster, jobs and speeds. It prints warnings with the jobs of a trace that it omits.
func (s *source) open(ctx context.Context, a *cli.App) error {
	_, err := patient(ctx, func() (struct{}, error) { return struct{}{}, s.prepare(a) })
	return err
}

// patient returns the result of do, a function that cannot be canceled but takes seconds for a million jobs. If ctx is
// canceled first, patient immediately returns the cause of ctx. The process then ends while do still runs.
func patient[T any](ctx context.Context, do func() (T, error)) (T, error) {
	var result T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = do()
	}()
	select {
	case <-done:
		return result, err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (s *source) prepare(a *cli.App) error {
	const most = 1_000_000 // largest number of jobs; a run with this number takes minutes
	if s.arrivals.Jobs < 1 || s.arrivals.Jobs > most {
		return exit.Usagef("%s: --jobs: got %d, want 1 to %d", s.command, s.arrivals.Jobs, most)
	}
	if s.arrivals.Burst == 0 || s.arrivals.Surge == 0 { // package workload would take 0 as "no bursts"
		return exit.Usagef("%s: --burst and --surge: got %v and %v, want numbers from 1 to 1e6", s.command,
			s.arrivals.Burst, s.arrivals.Surge)
	}
	if s.arrivals.Surge != 1 {
		s.arrivals.SurgeFrom, s.arrivals.SurgeTo = 1.0/3, 2.0/3
	}
	if err := s.read(a, "jobs", "load", "burst", "surge", "seed", "seeds"); err != nil {
		return err
	}
	if s.listed == nil { // generate one job to check the flags of the arrivals
		one := *s
		one.arrivals.Jobs = 1
		if _, err := one.generate(0); err != nil {
			return err
		}
	}
	if err := s.unsure.check(s.command, s.listed); err != nil {
		return err
	}
	if err := s.readPrices(); err != nil {
		return err
	}
	return s.readChanges()
}

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

// seeds returns the number of job lists: with files, the number of lists in them, otherwise wanted.
func (s *source) seeds(wanted int) int {
	if s.listed != nil {
		return len(s.listed)
	}
	return wanted
}

// jobs returns the jobs of a seed. With files, seed i is list i, counted from 0.
func (s *source) jobs(ctx context.Context, seed uint64) (*scheduler.Workload, error) {
	if s.listed != nil {
		return s.listed[seed], nil
	}
	return patient(ctx, func() (*scheduler.Workload, error) { return s.generate(seed) })
}

func (s *source) generate(seed uint64) (*scheduler.Workload, error) {
	arrivals := s.arrivals
	arrivals.Seed = seed
	w, err := workload.Generate(s.setup, arrivals)
	if err != nil {
		return nil, exit.Usagef("%s: %w", s.command, err)
	}
	return w, nil
}

// single returns the seed of a command that runs on exactly one list of jobs.
func (s *source) single(seed uint64) (uint64, error) {
	if s.listed == nil {
		return seed, nil
	}
	if len(s.listed) > 1 {
		return 0, exit.Usagef("%s: --trace: got %d files, want 1", s.command, len(s.listed))
	}
	return 0, nil
}

// mostGap is the relative gap between an allocation and the optimum above which a run prints a warning.
const mostGap = 0.01

// play runs the policy with the given name on the jobs of a seed. The policy may see estimates instead of the exact
// work of jobs. The text run names the run in error messages. If watch is not nil, it records the decisions of the
// policy.
func (s *source) play(ctx context.Context, p *policies, run, name string, seed uint64, jobs *scheduler.Workload,
	record bool, watch *witness) (*scheduler.Result, error) {
	policy, err := p.get(name)
	if err != nil {
		return nil, err
	}
	played := policy
	if watch != nil {
		watch.Policy, played = policy, watch
	}
	unsure := s.unsure.Options
	unsure.List = seed
	played = uncertain.Hide(played, unsure)
	r, err := simulate.RunContext(ctx, played, s.setup.Cluster, jobs, s.setup.Speeds,
		simulate.Options{Changes: s.events, Record: record})
	if failure := p.failed(policy); failure != nil {
		err = exit.With(exit.Device, failure)
	}
	if v, ok := policy.(scheduler.Approximate); ok && v.Gaps().Largest > mostGap {
		p.warn(fmt.Sprintf("policy %s: the search for the best allocation reached its limit, and the value of an allocation may be more than %g %% below the optimum",
			name, 100*mostGap))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if errors.As(err, new(*simulate.StalledError)) {
		return nil, fmt.Errorf("%s: %w; add GPUs with --change +COUNTtype@SECONDS, or choose another policy", run, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", run, err)
	}
	return r, nil
}
