package schedule

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

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
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

const ingestLong = `Check a cluster, jobs and speeds, and print them in normalised form.

The input is one of these:

  FILE...      tables in TOML, CSV or JSON lines (docs/scheduling.md, "Input files"); a CSV file has the name of its table, such as
               jobs.csv, or is given as TABLE=FILE
  --speeds     speeds in the form of Gavel's simulation_throughputs.json; with --trace, also jobs in the form of Gavel's traces
  --profile    the folder with the files of hetero-train profile
  --alibaba    times of iterations in the form of job_1_norm.csv of Alibaba's cluster-trace-gpu-v2020; they are no workload, so the command
               prints how much the times of equal workers differ
  --live       the Nvidia GPUs, CPU cores, memory and network of this machine; memory bandwidth and arithmetic are missing, because only
               hetero-train profile measures them

Each figure is printed in its unit, followed by its value between 0 and 1 in parentheses. A dash marks a missing figure; the program never
guesses it. The ranges define which figures become 0 and 1: default ranges, ranges learnt from this input, or ranges of a file. The
last line states whether schedule simulate --input can run the input.`

const ingestExample = `  hetero-train schedule ingest cluster.toml jobs.csv
  hetero-train schedule ingest cluster.toml jobs=monday.csv --default jobs.network=0 --ranges quantiles --save-ranges ranges.json
  hetero-train schedule ingest --speeds simulation_throughputs.json --trace a.trace --json
  hetero-train schedule ingest --alibaba job_1_norm.csv --alibaba job_2_norm.csv
  hetero-train schedule ingest --live`

// Values of --ranges that do not name a file.
const (
	defaultRanges  = "default"
	extremeRanges  = "extremes"
	quantileRanges = "quantiles"
)

type ingestFlags struct {
	speeds, trace, profile string
	alibaba                []string
	live                   bool
	defaults               []string
	ranges, saveRanges     string
	rows                   int
	json                   bool
}

func newIngest(a *cli.App) *cobra.Command {
	f := &ingestFlags{}
	cmd := &cobra.Command{
		Use: "ingest [FILE...]", Short: "Check a cluster, jobs and speeds, and print them in normalised form",
		Long: ingestLong, Example: ingestExample}
	flags := cmd.Flags()
	flags.StringVar(&f.speeds, "speeds", "", "JSON `FILE` with speeds in Gavel's form")
	flags.StringVar(&f.trace, "trace", "", "`FILE` with jobs in the form of Gavel's traces; needs --speeds")
	flags.StringVar(&f.profile, "profile", "", "`FOLDER` with the files of hetero-train profile")
	flags.StringArrayVar(&f.alibaba, "alibaba", nil,
		"`FILE` with times of iterations of a job in Alibaba's form; repeatable")
	flags.BoolVar(&f.live, "live", false, "read this machine")
	flags.StringArrayVar(&f.defaults, "default", nil,
		"value for a figure that rows lack, for example `jobs.cpus=4`; repeatable")
	flags.StringVar(&f.ranges, "ranges", defaultRanges, "ranges of figures: `default|extremes|quantiles|FILE`; extremes: smallest and largest figure of the input; quantiles: 1 % and 99 %")
	flags.StringVar(&f.saveRanges, "save-ranges", "", "write the ranges to this JSON `FILE`, for --ranges")
	flags.IntVar(&f.rows, "rows", 20, "largest number of rows to print of a table; 0: all")
	flags.BoolVar(&f.json, "json", false,
		"print only one JSON object with all rows; figures are in base units, and missing figures are null")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		if len(f.alibaba) > 0 && len(files) == 0 {
			return runAlibaba(a, f.alibaba, f.json, cmd.LocalNonPersistentFlags())
		}
		return f.run(a, files)
	}
	return cmd
}

func (f *ingestFlags) run(a *cli.App, files []string) error {
	const command = "schedule ingest"
	if f.rows < 0 {
		return exit.Usagef("%s: --rows: got %d, want at least 0", command, f.rows)
	}
	if f.saveRanges != "" {
		var err error
		if f.saveRanges, err = checkOutput(command, "--save-ranges", f.saveRanges); err != nil {
			return err
		}
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
		if err := writeFile(f.saveRanges, func(w io.Writer) error {
			return features.WriteRanges(w, ranges)
		}); err != nil {
			return err
		}
	}
	if f.json {
		return show.JSON(a.Env.Stdout, ingestDocument(d, ranges, given))
	}
	_, err = io.WriteString(a.Env.Stdout, ingestText(d, ranges, given, f.rows))
	return err
}

// read reads the input that the flags name.
func (f *ingestFlags) read(a *cli.App, command string, files []string) (*ingest.Data, error) {
	inputs := 0
	for _, set := range []bool{len(files) > 0, f.speeds != "", f.profile != "", len(f.alibaba) > 0, f.live} {
		if set {
			inputs++
		}
	}
	switch {
	case inputs != 1:
		return nil, exit.Usagef("%s: got %d inputs, want one of FILE..., --speeds, --profile, --alibaba and --live",
			command, inputs)
	case f.trace != "" && f.speeds == "":
		return nil, exit.Usagef("%s: --trace needs --speeds, because the file of the speeds names the kinds of jobs",
			command)
	case f.speeds != "":
		return f.readGavel(command)
	case f.profile != "":
		return readProfile(command+": --profile", f.profile)
	case f.live:
		return readLive(a, command+": --live")
	}
	return readTables(command, files)
}

// readGavel reads speeds and a trace in Gavel's form. The result contains no properties of GPU types, and no machines.
func (f *ingestFlags) readGavel(command string) (*ingest.Data, error) {
	var g *ingest.Gavel
	var jobs []scheduler.Job
	err := readFile(command+": --speeds", f.speeds, func(r io.Reader) (err error) {
		g, err = ingest.ReadGavel(f.speeds, r)
		return err
	})
	if f.trace != "" {
		var kinds []scheduler.Kind // nil: the kinds of jobs are unknown
		if err == nil {
			kinds = g.Kinds
		}
		err = errors.Join(err, readFile(command+": --trace", f.trace, func(r io.Reader) (err error) {
			jobs, err = ingest.GavelTrace(f.trace, r, kinds)
			return err
		}))
	}
	if err != nil {
		return nil, err
	}
	var c scheduler.Cluster
	for _, name := range g.Types {
		c.Types = append(c.Types, scheduler.GPUType{Name: name, Memory: math.NaN(), Bandwidth: math.NaN(),
			Compute: math.NaN()})
	}
	return g.Data(c, jobs)
}

// readProfile reads the files that hetero-train profile has written. The file that describes the machines may be
// missing.
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

// readLive returns a description of this machine. Bandwidth and compute of its GPUs are missing, because only
// hetero-train profile measures them.
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
	m := ingest.LiveMachine{Name: host.Name, CPUs: known(host.CPU.Quota), Memory: known(float64(host.Memory.Limit)),
		Network: math.NaN()}
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
		one := ingest.LiveGPU{Machine: m.Name, Name: strconv.Itoa(g.Index), Model: g.Name,
			Memory:    float64(g.MemoryBytes),
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
	probe, err := gpus.Probe(index, system.Limits{})
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
	const seed = 1 // selects the random sample if there are more values than the learner keeps
	l := features.NewLearner(seed)
	l.Workload(&d.Cluster, &d.Workload)
	return l.Ranges(low, high)
}
