package schedule

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/features"
	"github.com/hetero-train/hetero-train/balancer/scheduler/ingest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/profiles"
	"github.com/hetero-train/hetero-train/profiler/system"
	"github.com/hetero-train/hetero-train/telemetry"
)

const ingestLong = `Check a cluster, jobs and speeds, and print them in normalised form.

The input is one of these:

  FILE...      tables in TOML, CSV or JSON lines (docs/scheduling.md, "Input files"); a CSV file has the name of its table, such as
               jobs.csv, or is given as TABLE=FILE
  --speeds     speeds in the form of Gavel's simulation_throughputs.json, with --trace also jobs in the form of Gavel's traces
  --profile    the folder with the files of hetero-train profile
  --live       the Nvidia GPUs, CPU cores, memory and network of this machine; memory bandwidth and arithmetic are missing, because only a
               profile measures them

Each figure is printed in its unit, followed by its value between 0 and 1 in parentheses. A dash marks a missing figure; the program never
guesses it. The ranges state which figures become 0 and 1: defaults, ranges learnt from this input, or those of a file. The last line states
whether schedule simulate --input can run the input.`

const ingestExample = `  hetero-train schedule ingest cluster.toml jobs.csv
  hetero-train schedule ingest cluster.toml jobs=monday.csv --default jobs.cpus=4 --ranges quantiles --save-ranges ranges.json
  hetero-train schedule ingest --speeds simulation_throughputs.json --trace a.trace --json
  hetero-train schedule ingest --live`

// Origins of ranges, the values of --ranges beside files.
const (
	defaultRanges  = "default"
	extremeRanges  = "extremes"
	quantileRanges = "quantiles"
)

type ingestFlags struct {
	speeds, trace, profile string
	live                   bool
	defaults               []string
	ranges, saveRanges     string
	rows                   int
	json                   bool
}

func newIngest(a *cli.App) *cobra.Command {
	f := &ingestFlags{}
	cmd := &cobra.Command{Use: "ingest [FILE...]", Short: "Check a cluster, jobs and speeds, and print them normalised", Long: ingestLong, Example: ingestExample}
	flags := cmd.Flags()
	flags.StringVar(&f.speeds, "speeds", "", "JSON `FILE` with speeds in Gavel's form")
	flags.StringVar(&f.trace, "trace", "", "`FILE` with jobs in the form of Gavel's traces; needs --speeds")
	flags.StringVar(&f.profile, "profile", "", "`FOLDER` with the files of hetero-train profile")
	flags.BoolVar(&f.live, "live", false, "read this machine")
	flags.StringArrayVar(&f.defaults, "default", nil, "value for a figure that rows lack, for example `jobs.cpus=4`; repeatable")
	flags.StringVar(&f.ranges, "ranges", defaultRanges, "ranges of figures: `default|extremes|quantiles|FILE`; extremes: smallest and largest figure of the input; quantiles: 1 % and 99 %")
	flags.StringVar(&f.saveRanges, "save-ranges", "", "write the ranges to this JSON `FILE`, for --ranges")
	flags.IntVar(&f.rows, "rows", 20, "largest number of rows to print of a table; 0: all")
	flags.BoolVar(&f.json, "json", false, "print only one JSON object with all rows; figures are in base units, and missing figures are null")
	cmd.RunE = func(_ *cobra.Command, files []string) error { return f.run(a, files) }
	return cmd
}

func (f *ingestFlags) run(a *cli.App, files []string) error {
	const command = "schedule ingest"
	if f.rows < 0 {
		return exit.Usagef("%s: --rows: got %d, want at least 0", command, f.rows)
	}
	d, err := f.read(a, command, files)
	if err != nil {
		return err
	}
	given, err := fill(command, d, f.defaults)
	if err != nil {
		return err
	}
	ranges, err := f.rangesOf(command, d)
	if err != nil {
		return err
	}
	if f.saveRanges != "" {
		if err := writeFile(f.saveRanges, func(w io.Writer) error { return features.WriteRanges(w, ranges) }); err != nil {
			return err
		}
	}
	if f.json {
		return show.JSON(a.Env.Stdout, ingestDocument(d, ranges, given))
	}
	_, err = io.WriteString(a.Env.Stdout, f.text(d, ranges, given))
	return err
}

// read reads the one input that the flags name.
func (f *ingestFlags) read(a *cli.App, command string, files []string) (*ingest.Data, error) {
	inputs := 0
	for _, set := range []bool{len(files) > 0, f.speeds != "", f.profile != "", f.live} {
		if set {
			inputs++
		}
	}
	switch {
	case inputs != 1:
		return nil, exit.Usagef("%s: got %d inputs, want one of FILE..., --speeds, --profile and --live", command, inputs)
	case f.trace != "" && f.speeds == "":
		return nil, exit.Usagef("%s: got --trace without --speeds, want both: the speeds name the kinds of jobs", command)
	case f.speeds != "":
		return f.readGavel(command)
	case f.profile != "":
		return readProfile(command+": --profile", f.profile)
	case f.live:
		return readLive(a, command+": --live")
	}
	return readTables(command, files)
}

// readGavel reads speeds and a trace. The types of GPUs have no figures, and there are no machines.
func (f *ingestFlags) readGavel(command string) (*ingest.Data, error) {
	var g *ingest.Gavel
	var jobs []scheduler.Job
	err := readFile(command+": --speeds", f.speeds, func(r io.Reader) (err error) {
		g, err = ingest.ReadGavel(f.speeds, r)
		return err
	})
	if err == nil && f.trace != "" {
		err = readFile(command+": --trace", f.trace, func(r io.Reader) (err error) {
			jobs, err = ingest.GavelTrace(f.trace, r, g.Kinds)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	var c scheduler.Cluster
	for _, name := range g.Types {
		c.Types = append(c.Types, scheduler.GPUType{Name: name, Memory: math.NaN(), Bandwidth: math.NaN(), Compute: math.NaN()})
	}
	return g.Data(c, jobs)
}

// readProfile reads the files of hetero-train profile. The file about the machines may be missing.
func readProfile(what, folder string) (*ingest.Data, error) {
	ranks, machines := filepath.Join(folder, profiles.RanksFile), filepath.Join(folder, profiles.SystemFile)
	var d *ingest.Data
	err := readFile(what, ranks, func(r io.Reader) (err error) {
		if _, missing := os.Stat(machines); errors.Is(missing, fs.ErrNotExist) {
			d, err = ingest.Profile(ranks, r, machines, nil)
			return err
		}
		return readFile(what, machines, func(s io.Reader) (err error) {
			d, err = ingest.Profile(ranks, r, machines, s)
			return err
		})
	})
	return d, err
}

// readLive describes this machine. Bandwidth and compute of its GPUs are missing, because only a profile measures them.
func readLive(a *cli.App, what string) (*ingest.Data, error) {
	host, err := system.Detect()
	if err != nil {
		a.WarnOf(fmt.Sprintf("%s: %v", what, err))
	}
	gpus := hardware.Open()
	defer gpus.Close()
	return liveData(a, what, host, gpus)
}

func liveData(a *cli.App, what string, host system.Host, gpus *hardware.GPUs) (*ingest.Data, error) {
	known := func(x float64) float64 {
		if x > 0 {
			return x
		}
		return math.NaN()
	}
	m := ingest.LiveMachine{Name: host.Name, CPUs: known(host.CPU.Quota), Memory: known(float64(host.Memory.Limit)), Network: math.NaN()}
	for _, n := range host.Networks {
		if speed := float64(n.SpeedMbits) * 1e6 / 8; n.Up && speed > 0 && !(m.Network >= speed) {
			m.Network = speed
		}
	}
	if len(gpus.All()) == 0 {
		return nil, exit.With(exit.Device, fmt.Errorf("%s: got no GPU: %s", what, gpus.Reason()))
	}
	var list []ingest.LiveGPU
	for _, g := range gpus.All() {
		one := ingest.LiveGPU{Machine: m.Name, Name: strconv.Itoa(g.Index), Model: g.Name, Memory: float64(g.MemoryBytes),
			Bandwidth: math.NaN(), Compute: math.NaN(), Utilization: math.NaN(), Temperature: math.NaN()}
		if sample, err := sampleOf(gpus, g.Index); err != nil {
			a.WarnOf(fmt.Sprintf("%s: GPU %d: %v", what, g.Index, err))
		} else {
			one.Utilization, one.Temperature = sample[telemetry.Utilization]/100, sample[telemetry.Temperature]
		}
		list = append(list, one)
	}
	d, err := ingest.Live([]ingest.LiveMachine{m}, list)
	if err != nil {
		return nil, exit.With(exit.Device, fmt.Errorf("%s: %w", what, err))
	}
	return d, nil
}

func sampleOf(gpus *hardware.GPUs, index int) (telemetry.Sample, error) {
	probe, err := gpus.Probe(index)
	if err != nil {
		return telemetry.Unknown(), err
	}
	sample, err := probe.Sample()
	return sample, errors.Join(err, probe.Close())
}

// rangesOf returns the ranges that --ranges names.
func (f *ingestFlags) rangesOf(command string, d *ingest.Data) (*features.Ranges, error) {
	low, high := 0.0, 1.0
	switch f.ranges {
	case defaultRanges:
		return features.DefaultRanges(), nil
	case extremeRanges:
	case quantileRanges:
		low, high = 0.01, 0.99
	default:
		var r *features.Ranges
		err := readFile(command+": --ranges", f.ranges, func(in io.Reader) (err error) {
			r, err = features.ReadRanges(f.ranges, in)
			return err
		})
		return r, err
	}
	const seed = 1 // of the random sample of more figures than the learner keeps
	l := features.NewLearner(seed)
	l.Workload(&d.Cluster, &d.Workload)
	return l.Ranges(low, high)
}

// Documents of ingest, as JSON.
type (
	ingested struct {
		Types      []ingestedType    `json:"gpu_types"`
		Machines   []ingestedMachine `json:"machines"`
		GPUs       []ingestedRow     `json:"gpus"`
		Kinds      []ingestedKind    `json:"kinds"`
		Jobs       []ingestedRow     `json:"jobs"`
		Speeds     []ingestedSpeed   `json:"speeds"`
		Pairs      int               `json:"pairs"` // number of speeds of jobs that share GPUs
		Ranges     []ingestedRange   `json:"ranges"`
		Missing    []ingestedMissing `json:"missing"`
		Given      []ingestedMissing `json:"given"`      // by --default
		Simulation string            `json:"simulation"` // "" if the input can be simulated, else what prevents it
	}
	ingestedType struct {
		Name      string `json:"name"`
		Memory    any    `json:"memory_bytes"`
		Bandwidth any    `json:"bandwidth_bytes_per_s"`
		Compute   any    `json:"compute_flop_per_s"`
	}
	ingestedMachine struct {
		Name    string `json:"name"`
		CPUs    any    `json:"cpus"`
		Memory  any    `json:"memory_bytes"`
		Network any    `json:"network_bytes_per_s"`
		GPUs    int    `json:"gpus"`
	}
	ingestedKind struct {
		Name      string `json:"name"`
		Class     string `json:"class"`
		GPUMemory any    `json:"gpu_memory_bytes"`
		Save      any    `json:"save_s"`
		Load      any    `json:"load_s"`
	}
	ingestedRow struct {
		Name    string                  `json:"name"`
		Of      string                  `json:"of"` // type of the GPU or kind of the job
		Arrival any                     `json:"arrival_s,omitempty"`
		Facts   map[string]ingestedFact `json:"facts"` // by the name of the fact
	}
	ingestedFact struct {
		Value      any `json:"value"`
		Normalised any `json:"normalised"`
	}
	ingestedSpeed struct {
		Kind    string  `json:"kind"`
		GPUType string  `json:"gpu_type"`
		GPUs    int     `json:"gpus"`
		Speed   float64 `json:"speed_steps_per_s"`
		Spread  float64 `json:"spread_speed_steps_per_s"`
	}
	ingestedRange struct {
		Fact   string  `json:"fact"`
		Unit   string  `json:"unit"`
		Low    float64 `json:"low"`
		High   float64 `json:"high"`
		Log    bool    `json:"log"`
		Origin string  `json:"origin"`
	}
	ingestedMissing struct {
		Table  string `json:"table"`
		Column string `json:"column"`
		Rows   int    `json:"rows"`
		Of     int    `json:"of"`
		First  string `json:"first"`
		Needed bool   `json:"needed"` // by the simulator
	}
)

func ingestDocument(d *ingest.Data, ranges *features.Ranges, given []ingest.Missing) ingested {
	n := show.Number[float64]
	out := ingested{Types: []ingestedType{}, Machines: []ingestedMachine{}, GPUs: []ingestedRow{}, Kinds: []ingestedKind{}, Jobs: []ingestedRow{}, Speeds: []ingestedSpeed{},
		Ranges: rangesList(d, ranges), Missing: missingList(d.Missing()), Given: missingList(given), Simulation: obstacleTo(d)}
	c, w := &d.Cluster, &d.Workload
	for _, t := range c.Types {
		out.Types = append(out.Types, ingestedType{t.Name, n(t.Memory), n(t.Bandwidth), n(t.Compute)})
	}
	for _, m := range c.Machines {
		out.Machines = append(out.Machines, ingestedMachine{m.Name, n(m.CPUs), n(m.Memory), n(m.Network), len(m.GPUs)})
	}
	facts := func(values []features.Value) map[string]ingestedFact {
		out := make(map[string]ingestedFact, len(values))
		for _, v := range values {
			out[v.Name] = ingestedFact{n(v.Raw), n(v.Normalised)}
		}
		return out
	}
	for g, gpu := range c.GPUs {
		out.GPUs = append(out.GPUs, ingestedRow{Name: gpu.Name, Of: c.Types[gpu.Type].Name, Facts: facts(ranges.GPU(c, g))})
	}
	for _, k := range w.Kinds {
		out.Kinds = append(out.Kinds, ingestedKind{k.Name, k.Class.String(), n(k.GPUMemory), n(k.Save), n(k.Load)})
	}
	for i, j := range w.Jobs {
		out.Jobs = append(out.Jobs, ingestedRow{Name: j.Name, Of: w.Kinds[j.Kind].Name, Arrival: n(j.Arrival), Facts: facts(ranges.Job(w, i))})
	}
	if d.Speeds != nil {
		out.Pairs = len(d.Speeds.Pairs)
		for k, kind := range d.Speeds.Kinds {
			for t, rates := range kind.Types {
				for _, r := range rates {
					out.Speeds = append(out.Speeds, ingestedSpeed{w.Kinds[k].Name, c.Types[t].Name, r.GPUs, r.Packed, r.Spread})
				}
			}
		}
	}
	return out
}

// rangesList lists the ranges of the facts that rows of the input have.
func rangesList(d *ingest.Data, ranges *features.Ranges) []ingestedRange {
	var used []features.Value
	if len(d.Cluster.GPUs) > 0 {
		used = append(used, ranges.GPU(&d.Cluster, 0)...)
	}
	if len(d.Workload.Jobs) > 0 {
		used = append(used, ranges.Job(&d.Workload, 0)...)
	}
	out := []ingestedRange{}
	for _, v := range used {
		if shown(v) {
			r, origin, _ := ranges.Of(v.Name)
			out = append(out, ingestedRange{v.Name, v.Unit, r.Low, r.High, r.Log, origin})
		}
	}
	return out
}

func missingList(list []ingest.Missing) []ingestedMissing {
	out := []ingestedMissing{}
	for _, m := range list {
		out = append(out, ingestedMissing{string(m.Table), m.Column, m.Rows, m.Of, m.First, m.Needed})
	}
	return out
}

// obstacleTo states what prevents a simulation; "" if nothing does.
func obstacleTo(d *ingest.Data) string {
	if err := d.Check(); err != nil {
		return err.Error()
	}
	return ""
}

func (f *ingestFlags) text(d *ingest.Data, ranges *features.Ranges, given []ingest.Missing) string {
	doc := ingestDocument(d, ranges, given)
	var b strings.Builder
	fmt.Fprintf(&b, "types of GPUs: %d | machines: %d | GPUs: %d | kinds: %d | jobs: %d | speeds: %d | speeds of pairs: %d\n",
		len(doc.Types), len(doc.Machines), len(doc.GPUs), len(doc.Kinds), len(doc.Jobs), len(doc.Speeds), doc.Pairs)
	f.table(&b, "machine\tCPU cores\tmemory\tnetwork\tGPUs", len(doc.Machines), func(i int) []string {
		m := &d.Cluster.Machines[i]
		return []string{show.Foreign(m.Name), amount(m.CPUs, "cores"), amount(m.Memory, "bytes"), amount(m.Network, "bytes/s"), strconv.Itoa(len(m.GPUs))}
	})
	if len(doc.GPUs) > 0 {
		f.table(&b, "GPU\ttype"+heads(ranges.GPU(&d.Cluster, 0)), len(doc.GPUs), func(i int) []string {
			return append([]string{show.Foreign(doc.GPUs[i].Name), show.Foreign(doc.GPUs[i].Of)}, cells(ranges.GPU(&d.Cluster, i))...)
		})
	} else {
		f.table(&b, "type of GPU\tmemory\tbandwidth\tcompute", len(doc.Types), func(i int) []string {
			t := &d.Cluster.Types[i]
			return []string{show.Foreign(t.Name), amount(t.Memory, "bytes"), amount(t.Bandwidth, "bytes/s"), amount(t.Compute, "FLOP/s")}
		})
	}
	f.table(&b, "kind\tclass\tGPU memory\tsave\tload", len(doc.Kinds), func(i int) []string {
		k := &d.Workload.Kinds[i]
		return []string{show.Foreign(k.Name), k.Class.String(), amount(k.GPUMemory, "bytes"), amount(k.Save, "s"), amount(k.Load, "s")}
	})
	if len(doc.Jobs) > 0 {
		f.table(&b, "job\tkind\tarrival"+heads(ranges.Job(&d.Workload, 0)), len(doc.Jobs), func(i int) []string {
			return append([]string{show.Foreign(doc.Jobs[i].Name), show.Foreign(doc.Jobs[i].Of), amount(d.Workload.Jobs[i].Arrival, "s")}, cells(ranges.Job(&d.Workload, i))...)
		})
	}
	f.table(&b, "speeds: kind\ttype of GPU\tGPUs\tsteps/s\tover machines", len(doc.Speeds), func(i int) []string {
		s := &doc.Speeds[i]
		return []string{show.Foreign(s.Kind), show.Foreign(s.GPUType), strconv.Itoa(s.GPUs), fmt.Sprintf("%.4g", s.Speed), fmt.Sprintf("%.4g", s.Spread)}
	})
	f.table(&b, "range\tbecomes 0\tbecomes 1\tscale\torigin", len(doc.Ranges), func(i int) []string {
		r, scale := &doc.Ranges[i], "linear"
		if r.Log {
			scale = "logarithmic"
		}
		return []string{r.Fact, amount(r.Low, r.Unit), amount(r.High, r.Unit), scale, show.Foreign(r.Origin)}
	})
	for _, m := range given {
		fmt.Fprintf(&b, "\ngiven by --default: %s.%s in %d of %d rows", m.Table, m.Column, m.Rows, m.Of)
	}
	b.WriteString("\n")
	if list := d.Missing(); len(list) == 0 {
		b.WriteString("missing figures: none\n")
	} else {
		b.WriteString("missing figures:\n")
		for _, m := range list {
			fmt.Fprintf(&b, "  %v\n", m)
		}
	}
	needed := func(m ingest.Missing) bool { return m.Needed }
	switch {
	case doc.Simulation == "":
		b.WriteString("simulation: possible\n")
	case slices.ContainsFunc(d.Missing(), needed):
		b.WriteString("simulation: not possible: the simulator needs figures that are missing; state them in the input, or give --default TABLE.COLUMN=VALUE\n")
	default:
		fmt.Fprintf(&b, "simulation: not possible:\n  %s\n", strings.ReplaceAll(doc.Simulation, "\n", "\n  "))
	}
	return b.String()
}

// table prints the first rows of a table, and nothing for a table without rows.
func (f *ingestFlags) table(b *strings.Builder, head string, rows int, row func(i int) []string) {
	if rows == 0 {
		return
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	shown := rows
	if f.rows > 0 {
		shown = min(rows, f.rows)
	}
	for i := range shown {
		fmt.Fprintln(t, strings.Join(row(i), "\t"))
	}
	t.Flush() // into memory
	if shown < rows {
		fmt.Fprintf(b, "%d more rows; --rows 0 prints all\n", rows-shown)
	}
}

// shown reports whether a fact has a column of its own. The class of a job is in its kind's row.
func shown(v features.Value) bool {
	return !slices.Contains([]string{"job.simulation", "job.learning", "job.processing"}, v.Name)
}

// heads are the names of facts as heads of columns.
func heads(values []features.Value) string {
	var b strings.Builder
	for _, v := range values {
		if shown(v) {
			_, name, _ := strings.Cut(v.Name, ".")
			b.WriteString("\t" + strings.ReplaceAll(name, "_", " "))
		}
	}
	return b.String()
}

// cells are facts with their normalised values, such as "16 GiB (0.32)".
func cells(values []features.Value) []string {
	var out []string
	for _, v := range values {
		switch {
		case !shown(v):
		case math.IsNaN(v.Raw):
			out = append(out, "-")
		default:
			out = append(out, fmt.Sprintf("%s (%.2f)", amount(v.Raw, v.Unit), v.Normalised))
		}
	}
	return out
}

// amount shows a figure with its unit, a dash for NaN.
func amount(x float64, unit string) string {
	if math.IsNaN(x) {
		return "-"
	}
	scaled := func(base float64, units ...string) string {
		i := 0
		for ; i < len(units)-1 && x >= base; i++ {
			x /= base
		}
		return fmt.Sprintf("%.4g %s", x, units[i])
	}
	switch unit {
	case "bytes":
		return scaled(1024, "B", "KiB", "MiB", "GiB", "TiB")
	case "bytes/s":
		return scaled(1000, "B/s", "kB/s", "MB/s", "GB/s", "TB/s")
	case "FLOP/s":
		return scaled(1000, "FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s")
	case "s":
		return fmt.Sprintf("%.6g s", x)
	case "C":
		return fmt.Sprintf("%.4g °C", x)
	}
	return fmt.Sprintf("%.6g", x)
}
