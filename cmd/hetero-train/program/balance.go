package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

const simulateLong = `Play a balancing policy against step-time curves, without training.

The curves are lines of rank,batch,seconds: linear between the points, flat below the first one; the last point is
the most samples that the rank can hold. The policy starts with equal shares, within these limits, and sees nothing but
measured times: those of the curves, with lognormal noise. There is no communication. Times in the result are without noise.`

const simulateExample = `  hetero-train balance simulate --curves curves.csv --global-batch 256 --policy hybrid
  hetero-train balance simulate --curves curves.csv --global-batch 256 --policy dynamic --noise 0.1 --json`

func newBalance(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "balance", Short: "Compare balancing policies, in training or in simulation", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newBalanceCompare(a), newBalanceSimulate(a))
	return cmd
}

// mostCurves bounds a file of curves, in bytes.
const mostCurves = 64 << 20

// simulateFlags are the flags of balance simulate.
type simulateFlags struct {
	curves string
	json   bool
	simulate.Options
}

func newBalanceSimulate(a *app) *cobra.Command {
	f := new(simulateFlags)
	cmd := &cobra.Command{Use: "simulate", Short: "Play a policy against known curves", Long: simulateLong, Example: simulateExample, Args: noArguments}
	flags := cmd.Flags()
	flags.StringVar(&f.curves, "curves", "", "`FILE` (CSV) of rank,batch,seconds")
	flags.IntVar(&f.Total, "global-batch", 0, "samples of a step over all ranks")
	flags.StringVar(&f.Policy, "policy", "hybrid", "`"+strings.Join(balancer.Policies(), "|")+"`")
	flags.Float64Var(&f.Noise, "noise", 0.05, "standard deviation of the logarithm of a measured time")
	flags.IntVar(&f.Steps, "steps", 200, "optimizer steps")
	flags.IntVar(&f.Interval, "interval", 10, "steps between two decisions")
	flags.Uint64Var(&f.Seed, "seed", 1, "of the noise")
	flags.BoolVar(&f.json, "json", false, "the result as one JSON object, the last line of standard output")
	mustComplete(cmd.MarkFlagFilename("curves", "csv"))
	cmd.RunE = func(*cobra.Command, []string) error { return f.run(a) }
	return cmd
}

func (f *simulateFlags) run(a *app) error {
	if f.curves == "" {
		return usageError("balance simulate: --curves is missing: a CSV file of rank,batch,seconds")
	}
	if f.Total < 1 {
		return usageError("balance simulate: --global-batch: got %d, want at least 1", f.Total)
	}
	text, err := readSmall(f.curves, mostCurves)
	if err != nil {
		return usageError("balance simulate: --curves: %w", err)
	}
	curves, warnings, err := simulate.ReadCurves(bytes.NewReader(text))
	if err != nil {
		return usageError("balance simulate: %s: %w", f.curves, err)
	}
	for _, w := range warnings {
		fmt.Fprintf(a.env.stderr, "warning: %s: %s\n", f.curves, w)
	}
	f.Curves = curves
	r, err := simulate.Run(f.Options)
	if err != nil {
		return usageError("balance simulate: %w", err)
	}
	out := a.env.stdout
	for _, h := range r.History {
		fmt.Fprintf(out, "after step %d | %.2f %% of the oracle | shares %v | %s\n", h.Step, 100*h.ShareOfOracle, h.Shares, h.Reason)
	}
	if f.json {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %d rebalances in %d steps | shares %v | step %.6g s, oracle %.6g s: %.2f %% of the oracle\n",
		f.Policy, r.Rebalances, f.Steps, r.Shares, r.StepSeconds, r.OracleSeconds, 100*r.ShareOfOracle)
	return err
}
