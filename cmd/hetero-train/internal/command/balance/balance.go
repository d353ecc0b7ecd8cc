package balance

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/simulate"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const simulateLong = `Simulate a balancing policy on known step-time curves, without training.

Each line of the CSV file is a point of a curve: rank,batch,seconds. Between two points the curve is linear, and before the first
point it is flat. The last point of a curve is the largest batch that fits into the memory of the rank.

The policy starts with equal shares, or with shares in proportion to --scores. It sees only measured times, which are the times of
the curves with lognormal noise. It knows which ranks have equal curves, because in a training run it knows which ranks have the same
type of device. The simulation has no communication time. The output shows times without noise.

The oracle is the best division of the batch. The column "of the oracle" is the oracle's step time divided by the step time of the
current shares.`

const simulateExample = `  hetero-train balance simulate --curves curves.csv --global-batch 256 --policy hybrid
  hetero-train balance simulate --curves curves.csv --global-batch 256 --policy proportional --scores 4,2,1
  hetero-train balance simulate --curves - --global-batch 256 --policy dynamic --noise 0.1 --json`

// New returns the command that simulates and compares balancing policies.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{Use: "balance", Short: "Compare balancing policies, in training or in simulation",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(cli.WithConfig(newBalanceCompare(a)), newBalanceSimulate(a))
	return cmd
}

// mostCurves is the maximum size of a file of curves in bytes.
const mostCurves = 64 << 20

// simulateFlags are the flags of command balance simulate.
type simulateFlags struct {
	curves string
	scores []float64
	json   bool
	sized  bool // true if the policy reports its memory
	simulate.Options
}

func newBalanceSimulate(a *cli.App) *cobra.Command {
	f := new(simulateFlags)
	cmd := &cobra.Command{Use: "simulate", Short: "Simulate a policy on known step-time curves", Long: simulateLong,
		Example: simulateExample, Args: cli.NoArguments}
	flags := cmd.Flags()
	flags.StringVar(&f.curves, "curves", "", "CSV `FILE` or pipe with lines rank,batch,seconds; -: standard input")
	flags.IntVar(&f.Total, "global-batch", 0, "samples per step, over all ranks")
	flags.StringVar(&f.Policy, "policy", "hybrid",
		"policy to simulate: `"+strings.Join(parts.KindNames(a.Env.Catalog.Policies), "|")+"`")
	flags.Float64SliceVar(&f.scores, "scores", nil,
		"compute `scores` of the ranks, separated by commas; default: equal scores")
	flags.Lookup("scores").DefValue = "" // empty, because the help text itself contains the default
	flags.Float64Var(&f.Noise, "noise", 0.05, "noise of measured times: standard deviation of their logarithm")
	flags.IntVar(&f.Steps, "steps", 200, "optimizer steps to simulate")
	flags.IntVar(&f.Interval, "interval", 10, "steps between two balancing decisions")
	flags.Uint64Var(&f.Seed, "seed", 1, "seed of the noise")
	flags.BoolVar(&f.json, "json", false, "print only one JSON object with the result")
	cli.MustComplete(cmd.MarkFlagFilename("curves", "csv"))
	cmd.RunE = func(*cobra.Command, []string) error { return f.run(a, flags.Changed) }
	return cli.WithoutConfig(cmd, "a simulation has its own flags")
}

// check returns an error that names an invalid flag. The function given reports whether the command line has a flag.
func (f *simulateFlags) check(catalog config.Catalog, given func(flag string) bool) error {
	switch {
	case f.curves == "":
		return exit.Usagef("balance simulate: --curves is missing, want a CSV file of rank,batch,seconds")
	case !given("global-batch"):
		return exit.Usagef("balance simulate: --global-batch is missing, want the samples of a step, over all ranks")
	case f.Total < 1 || f.Total > simulate.MostTotal:
		return exit.Usagef("balance simulate: --global-batch: got %d, want 1 to %d", f.Total, simulate.MostTotal)
	case f.Steps < 1 || f.Steps > simulate.MostSteps:
		return exit.Usagef("balance simulate: --steps: got %d, want 1 to %d", f.Steps, simulate.MostSteps)
	case f.Interval < 1:
		return exit.Usagef("balance simulate: --interval: got %d steps, want at least 1", f.Interval)
	case !(f.Noise >= 0) || f.Noise > simulate.MostNoise:
		return exit.Usagef("balance simulate: --noise: got %v, want 0 to %v", f.Noise, simulate.MostNoise)
	}
	var err error
	if f.Maker, err = parts.PolicyMaker(catalog, new(config.Balance), f.Policy); err != nil {
		return fmt.Errorf("balance simulate: --policy: %w", err)
	}
	return nil
}

// readCurves reads the file of --curves, or standard input.
func (f *simulateFlags) readCurves(a *cli.App) error {
	var text []byte
	var err error
	name := f.curves
	if name == "-" {
		name = "standard input"
		text, err = readPipe(name, os.Stdin)
	} else if info, statErr := os.Stat(name); statErr == nil && info.Mode()&os.ModeNamedPipe != 0 {
		// The path may name a pipe, as in --curves <(command).
		var pipe *os.File
		if pipe, err = os.Open(name); err == nil {
			defer pipe.Close() // no error: the pipe was only read
			text, err = readPipe(name, pipe)
		}
	} else {
		text, err = regular.Read(name, mostCurves)
	}
	if err != nil {
		return exit.Usagef("balance simulate: --curves: %w", err)
	}
	curves, warnings, err := simulate.ReadCurves(bytes.NewReader(text))
	if err != nil {
		return exit.Usagef("balance simulate: %s: %w", name, err)
	}
	for _, w := range warnings {
		a.WarnOf(fmt.Sprintf("%s: %s", name, w))
	}
	f.Curves = curves
	return nil
}

// readPipe reads curves from a pipe until its other end is closed.
func readPipe(name string, pipe io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(pipe, mostCurves+1))
	if err == nil && len(text) > mostCurves {
		err = fmt.Errorf("%s: got more than %d bytes, want at most %d", name, mostCurves, mostCurves)
	}
	return text, err
}

func (f *simulateFlags) run(a *cli.App, given func(flag string) bool) error {
	if err := f.check(a.Env.Catalog, given); err != nil {
		return err
	}
	if err := f.readCurves(a); err != nil {
		return err
	}
	f.Knows = func(o *balancer.Options) {
		o.Types = simulate.Types(f.Curves)
		if len(f.scores) > 0 {
			o.Scores = f.scores
		}
	}
	switch {
	case len(f.scores) > 0:
		if len(f.scores) != len(f.Curves) {
			return exit.Usagef("balance simulate: --scores: got %s, want %d, one per rank of the curves",
				show.Count(len(f.scores), "value"), len(f.Curves))
		}
		if f.Maker.Scoreless {
			a.WarnOf("policy " + f.Policy + " ignores --scores: its shares are equal")
		}
	case f.Maker.Static && !f.Maker.Scoreless:
		a.WarnOf("without --scores, policy " + f.Policy + " gives equal shares, as policy none does")
	}
	create := f.Maker.New
	timed := new(timedPolicy)
	f.Maker.New = func(o balancer.Options) (balancer.Policy, error) {
		p, err := create(o)
		_, f.sized = p.(balancer.Sized)
		timed.Policy = p
		return timed, err
	}
	r, err := simulate.Run(f.Options)
	if err != nil {
		return exit.Usagef("balance simulate: %w", err)
	}
	if timed.err != nil {
		return fmt.Errorf("balance simulate: CPU time of the decisions: %w", timed.err)
	}
	if f.json {
		return show.JSON(a.Env.Stdout, struct {
			*simulate.Result
			Decisions *decisionTimes `json:"decisions"`
		}{r, timed.times()})
	}
	return f.print(a.Env.Stdout, r, timed.times())
}

// print writes a line for each change of shares, and a summary.
func (f *simulateFlags) print(out io.Writer, r *simulate.Result, times *decisionTimes) error {
	var b strings.Builder
	for _, h := range r.History {
		fmt.Fprintf(&b, "after step %d | %.2f %% of the oracle | shares %s | %s\n", h.Step, 100*h.ShareOfOracle,
			sharesText(h.Shares), h.Reason)
	}
	fmt.Fprintf(&b, "%s: %s in %s | shares %s | step %.6g s, oracle %.6g s: %.2f %% of the oracle\n",
		f.Policy, show.Count(r.Rebalances, "rebalance"), show.Count(f.Steps, "step"), sharesText(r.Shares),
		r.StepSeconds, r.OracleSeconds, 100*r.ShareOfOracle)
	fmt.Fprintf(&b, "of the oracle: %.2f %% at the start | %.2f %% mean | %.2f %% in the last quarter of the steps\n",
		100*r.StartShareOfOracle, 100*r.MeanShareOfOracle, 100*r.LastQuarterShareOfOracle)
	if e := r.Estimate; e != nil {
		fmt.Fprintf(&b,
			"estimate of the policy, from measured times: %.2f %% of the oracle (90 %% interval: %.2f to %.2f)\n",
			100*e.Value, 100*e.Low, 100*e.High)
	}
	if times != nil {
		fmt.Fprintf(&b, "%s in CPU time: median %.3g s, longest %.3g s (after step %d)\n",
			show.Count(times.Count, "decision"), times.Median, times.Longest, times.LongestStep)
	}
	b.WriteString(memoryText(r.Memory, len(f.Curves), f.sized))
	_, err := io.WriteString(out, b.String())
	return err
}

// sharesText returns the shares as text. With more than 64 ranks, it contains only the first ones. The output of --json
// contains all shares.
func sharesText(shares []int) string {
	const most, first = 64, 16
	if len(shares) <= most {
		return fmt.Sprint(shares)
	}
	return fmt.Sprintf("%s … (%d ranks)", strings.Trim(fmt.Sprint(shares[:first]), "[]"), len(shares))
}

// memoryText returns the line with the memory of the simulation. If sized is false, the policy does not report its
// memory, and parts does not contain this memory.
func memoryText(parts []balancer.Memory, ranks int, sized bool) string {
	sum, words := int64(0), make([]string, 0, len(parts))
	for _, p := range parts {
		sum += p.Bytes
		words = append(words, p.Name+" "+memory.Size(p.Bytes))
	}
	if !sized {
		words = append(words, "policy unknown")
	}
	return fmt.Sprintf("memory: %s, %d bytes a rank: %s\n", memory.Size(sum), sum/int64(max(ranks, 1)),
		strings.Join(words, ", "))
}
