package schedule

import (
	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
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
