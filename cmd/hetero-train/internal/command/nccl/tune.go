package nccl

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exchange"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/nccl"
)

const ncclTuneLong = `Time all-reduce over all ranks for every combination of size, algorithm, protocol and number of channels.

The command writes two files into --output-dir:

  nccl.toml        a [nccl] table for the configuration: the fastest combination for gradient buckets of 1 to 32 MiB.
                   If NCCL's own choice is at most 3 % slower, the table has no algorithm and no protocol.
  nccl_tuner.csv   the fastest combination for each size, for NCCL's example tuner plugin (this program does not load it)

The command skips combinations that these GPUs do not support. --log-level debug shows the reasons.`

// tuned is the output of command nccl tune.
type tuned struct {
	Trials      []nccl.Trial     `json:"trials"`
	Fastest     []nccl.Trial     `json:"fastest"`
	Recommended nccl.Combination `json:"recommended"`
	// time with NCCL's own choice divided by the time with the recommended combination
	Gain  float64  `json:"gain"`
	Files []string `json:"files"`
}

func newNCCLTune(a *cli.App) *cobra.Command {
	var asJSON, quick bool
	var folder string
	flags := new(cli.LauncherFlags)
	cmd := &cobra.Command{Use: "tune", Short: "Find the fastest NCCL settings for all-reduce", Long: ncclTuneLong,
		Args:    cli.NoArguments,
		Example: "  hetero-train nccl tune --nproc-per-node 8 --output-dir tuned\n  hetero-train nccl tune --nproc-per-node 8 --quick --json"}
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object on one line of standard output instead of the table")
	cmd.Flags().BoolVar(&quick, "quick", false, "test only NCCL's default number of channels")
	cmd.Flags().StringVar(&folder, "output-dir", ".", "`folder` for the two files")
	cli.AddLauncherFlags(flags, cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if folder == "" {
			return exit.Usagef("--output-dir: got an empty name, want a folder")
		}
		return withNCCL(cmd.Context(), a, "nccl tune", flags, func(ctx context.Context, x *exchange.Exchange) error {
			trials, err := tune(ctx, x, quick)
			if err != nil || !x.Rank.Team.Leads() {
				return err
			}
			found := sumUp(trials)
			if err := found.save(folder, len(x.Hosts), x.Rank.Process.Opts.Assignment.WorldSize); err != nil {
				return exit.With(exit.FolderCode(err), err)
			}
			if asJSON {
				return show.JSON(a.Env.Stdout, found)
			}
			return found.write(a.Env.Stdout)
		})
	}
	return cmd
}

// tune measures an all-reduce with every combination of settings that NCCL supports. All ranks must call it.
func tune(ctx context.Context, x *exchange.Exchange, quick bool) (trials []nccl.Trial, err error) {
	channels := []int{0, 4, 8, 16, 32}
	if quick {
		channels = channels[:1]
	}
	everyone := make([]int, x.Rank.Team.Place.WorldSize)
	for i := range everyone {
		everyone[i] = i
	}
	defer withVariables(nccl.Combination{}.Variables()) //nolint:errcheck // the process ends soon after
	own := x.Rank.Process.Cfg.NCCL
	for i, c := range nccl.Combinations(channels) {
		if err := withVariables(c.Variables()); err != nil {
			return nil, err
		}
		x.Rank.Process.Cfg.NCCL = own
		if c.Channels > 0 {
			x.Rank.Process.Cfg.NCCL.MinCTAs, x.Rank.Process.Cfg.NCCL.MaxCTAs = c.Channels, c.Channels
		}
		x.Rank.Process.Opts.Log.Info("measuring", "what", c)
		list, err := curve(ctx, x, fmt.Sprintf("tune %d", i), everyone)
		if lost := x.Rank.Team.Group.Err(); lost != nil {
			return nil, lost
		}
		if err != nil {
			if i == 0 { // trial 0 is NCCL's own choice
				return nil, err
			}
			x.Rank.Process.Opts.Log.Debug("combination skipped", "what", c, "because", err)
		}
		if err := x.Rank.Team.Group.Barrier(ctx, fmt.Sprintf("nccl tune %d", i)); err != nil {
			return nil, err
		}
		for _, s := range list {
			trials = append(trials, nccl.Trial{Combination: c, Bytes: s.Bytes, Seconds: s.Seconds,
				BusGBytes: s.BusGBytes})
		}
	}
	return trials, nil
}

// Sizes of gradient buckets for which nccl tune recommends a combination, bytes.
const bucketsFrom, bucketsTo = 1 << 20, 32 << 20

func sumUp(trials []nccl.Trial) tuned {
	t := tuned{Trials: trials, Fastest: nccl.Fastest(trials)}
	t.Recommended, t.Gain = nccl.Recommend(trials, bucketsFrom, bucketsTo)
	return t
}

// save writes the result to two files.
func (t *tuned) save(folder string, machines, ranks int) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{{"nccl.toml", t.Recommended.Table()},
		{"nccl_tuner.csv", nccl.TunerCSV(t.Fastest, machines, ranks)}} {
		path := filepath.Join(folder, f.name)
		if err := experiment.ReplaceText(path, []byte(f.text)); err != nil {
			return err
		}
		t.Files = append(t.Files, path)
	}
	return nil
}

// write prints the bus bandwidth of each combination at each size, and the recommendation.
func (t tuned) write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "all-reduce, bus GB/s")
	for _, b := range t.Fastest {
		fmt.Fprintf(table, "\t%d KiB", b.Bytes>>10)
	}
	var last *nccl.Combination
	for _, trial := range t.Trials {
		if last == nil || *last != trial.Combination {
			fmt.Fprintf(table, "\n%v", trial.Combination)
			last = &trial.Combination
		}
		fmt.Fprintf(table, "\t%.2f", trial.BusGBytes)
	}
	fmt.Fprintln(table)
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w,
		"\nbest for gradient buckets: %v (%.2f times as fast as NCCL's default)\nfiles written: %v\n", t.Recommended,
		t.Gain, t.Files)
	return err
}
