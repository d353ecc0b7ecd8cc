package balance

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/train"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

const compareLong = `Compare balancing policies within one training run of several ranks.

The policies take turns, one block of steps each, so changes on the machine affect all policies alike. Each policy keeps its own
shares and sees only the times of its own blocks. The first step of each block does not count.

In addition to the values of balance.policy, --policies accepts:

  oracle  the best fixed shares, computed from step times measured at the start with several different shares
  off     equal shares, without profiling and balancing

Policy proportional uses the compute scores of a profile. Without a profile, it uses the speed of each rank with equal shares, in
samples/s.

The comparison is a separate experiment, NAME-balance_compare. It never moves or replaces a training run.

Columns of the result:

  of the oracle  step time of the oracle divided by the step time of the policy, over the last two thirds of the rounds,
                 with a 95 % interval (bootstrap over rounds)
  to steady      number of share changes before the step time stays within 1 % of the policy's best; -1: never`

const compareExample = `  scripts/lab.sh --cpu 0.8,0.4,0.2,0.2 -- ./hetero-train balance compare --set model.name=simple_cnn --set data.dataset=synthetic_image --set data.batch_size=256`

func newBalanceCompare(a *cli.App) *cobra.Command {
	f := new(session.ComparisonOptions)
	cmd := &cobra.Command{Use: "compare", Short: "Compare balancing policies within one run", Long: compareLong,
		Example: compareExample, Args: cli.NoArguments}
	all := append(parts.KindNames(a.Env.Catalog.Policies), rebalance.ComparisonOracle)
	cmd.Flags().StringSliceVar(&f.Policies, "policies", all, "policies to compare, from "+
		strings.Join(append(slices.Clone(all), rebalance.ComparisonOff), ", "))
	cmd.Flags().IntVar(&f.Block, "block", 10, "steps per block")
	cmd.Flags().IntVar(&f.Rounds, "rounds", 30, "blocks per policy")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkComparison(f, all); err != nil {
			return err
		}
		own, err := comparisonFolders(a)
		if err != nil {
			return err
		}
		for _, s := range append(own,
			[][2]string{{"train.steps", fmt.Sprint(4 * f.Block * (len(f.Policies)*f.Rounds + 40))},
				{"train.resume", "none"}, {"train.eval_interval", "0"},
				{"checkpoint.interval_seconds", "0"}, {"checkpoint.interval_steps", "0"}, {"schedule.name", "constant"},
				{"balance.curve_cache", "off"}}...) {
			a.Overrides = append(a.Overrides, config.Override{Origin: "balance compare", Key: s[0], Value: s[1]})
		}
		a.Comparison = f
		return train.Start(cmd.Context(), a, nil)
	}
	return cmd
}

// comparisonFolders returns settings that give a comparison its own folders. In the folder of a training run, the
// comparison would rename this folder.
func comparisonFolders(a *cli.App) ([][2]string, error) {
	name := "balance_compare"
	cfg, err := a.Read()
	if err != nil {
		return nil, err
	}
	if user := cfg.Experiment.Name; cfg.Origin(session.NameKey) != "" {
		name = user[:min(len(user), 64-len(name)-1)] + "-" + name
	}
	own := [][2]string{{"experiment.name", name}}
	if dir := cfg.Experiment.LogDir; dir != "" {
		own = append(own, [2]string{"experiment.log_dir", strconv.Quote(filepath.Join(dir, name))})
	}
	return own, nil
}

func checkComparison(f *session.ComparisonOptions, known []string) error {
	known = append(slices.Clone(known), rebalance.ComparisonOff)
	names := strings.Join(known, ", ")
	if len(f.Policies) == 0 {
		return exit.Usagef("balance compare: --policies: got no name, want at least one of %s", names)
	}
	for i, p := range f.Policies {
		if !slices.Contains(known, p) {
			return exit.Usagef("balance compare: --policies: got %q, want one of %s", p, names)
		}
		if slices.Contains(f.Policies[:i], p) {
			return exit.Usagef("balance compare: --policies: got %q twice, want each name at most once", p)
		}
	}
	const most = 1_000_000
	for _, flag := range []struct {
		name       string
		got, least int
	}{{"--block", f.Block, 3}, {"--rounds", f.Rounds, rebalance.LeastRounds}} {
		if flag.got < flag.least || flag.got > most {
			return exit.Usagef("balance compare: %s: got %d, want %d to %d", flag.name, flag.got, flag.least, most)
		}
	}
	return nil
}
