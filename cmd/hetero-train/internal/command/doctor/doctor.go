package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

const long = `Find problems that would slow down or stop a training run, before the run starts.

The command reads the clock, versions, limits, control groups, network interfaces, ports, tokens, certificates,
shared memory, disks, drivers and NCCL settings of this machine. With the launcher of a training run, or with
--nnodes, it also connects the machines, and compares them. It trains nothing and changes nothing. To test devices
and communication, run selftest; to measure speed, run profile.

Each finding has a level:
  ok       nothing to do
  note     worth knowing
  warning  training runs are slow, or some of them fail
  fault    training runs fail

Each warning and each fault has its cure.

Exit codes:
  0  no fault
  1  a check found a fault
  5  the machines cannot reach each other`

const example = `  hetero-train doctor
  hetero-train doctor -c configs/resnet50.toml        also its folders and ports
  hetero-train doctor --json
  srun --nodes 4 --ntasks-per-node 1 hetero-train doctor
  hetero-train doctor --nproc-per-node 1 --nnodes 2 --node-rank 0 --set parallel.master_addr=10.0.0.1`

// report is the output of command doctor.
type report struct {
	Faults   int       `json:"faults"`
	Warnings int       `json:"warnings"`
	Findings []finding `json:"findings"`
	Machines []machine `json:"machines"`
}

// New returns the command.
func New(a *cli.App) *cobra.Command {
	var asJSON, all bool
	assigned := new(cli.LauncherFlags)
	cmd := &cobra.Command{Use: "doctor", Short: "Find problems that would slow down or stop a training run",
		Long: long, Example: example, Args: cli.NoArguments}
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object with all facts on one line of standard output instead of the table")
	cmd.Flags().BoolVar(&all, "all", false, "print also the checks that passed")
	cli.AddLauncherFlags(assigned, cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return compute.OnRanks(cmd.Context(), a, assigned, false, func(ctx context.Context, k *compute.Rank) error {
			r, err := diagnose(ctx, k)
			if err != nil || !k.Team.Leads() {
				return err
			}
			if asJSON {
				err = show.JSON(a.Env.Stdout, r)
			} else {
				err = r.write(a.Env.Stdout, all)
			}
			if err == nil && r.Faults > 0 {
				err = exit.With(exit.Unexpected, fmt.Errorf("doctor: found %s", show.Count(r.Faults, "fault")))
			}
			return err
		})
	}
	return cmd
}

// diagnose examines this machine. If there are other ranks, it also compares all machines. Rank 0 gets the report, the
// other ranks get nil.
func diagnose(ctx context.Context, k *compute.Rank) (*report, error) {
	if k.Process.Opts.Assignment.WorldSize > 1 {
		if err := k.Meet(ctx, nil); err != nil { // without facts, Meet accepts differences, which compare reports later
			return nil, err
		}
	}
	machines := []machine{look(ctx, k)}
	var times clocks
	if k.Team != nil {
		var err error
		machines, err = process.GatherAll(ctx, k.Team, "facts of the machines", "facts of the machines: rank",
			machines[0])
		if err != nil {
			return nil, err
		}
		if times, err = compareClocks(ctx, k); err != nil {
			return nil, err
		}
	}
	if !k.Team.Leads() {
		return nil, nil
	}
	r := &report{Machines: machines}
	seen := map[string]bool{}
	for i := range machines { // only the first rank of each machine represents it
		if m := &machines[i]; !seen[m.HostID] {
			seen[m.HostID] = true
			r.Findings = append(r.Findings, examine(m)...)
		}
	}
	r.Findings = append(r.Findings, compare(machines, times)...)
	for _, f := range r.Findings {
		switch f.Level {
		case fault:
			r.Faults++
		case warning:
			r.Warnings++
		}
	}
	return r, nil
}

// clockRounds is the number of comparisons of the clocks. Only the comparison that took the shortest time counts.
const clockRounds = 5

// compareClocks compares the clocks of all ranks. In each comparison, every rank reads its clock between two exchanges
// of messages. The duration of the comparison is a limit of the error.
func compareClocks(ctx context.Context, k *compute.Rank) (best clocks, err error) {
	best.Error = math.MaxInt64
	for range clockRounds {
		begin := time.Now()
		if _, err := k.Team.Group.Gather(ctx, "comparison of clocks", nil); err != nil {
			return best, err
		}
		now := time.Now()
		words, err := k.Team.Group.Gather(ctx, "clocks", binary.LittleEndian.AppendUint64(nil, uint64(now.UnixNano())))
		if err != nil {
			return best, err
		}
		took := time.Since(begin)
		if took >= best.Error {
			continue
		}
		best = clocks{Error: took}
		for _, w := range words {
			if len(w) != 8 {
				return best, fmt.Errorf("clocks: got %d bytes, want 8", len(w))
			}
			best.Offsets = append(best.Offsets,
				time.Duration(int64(binary.LittleEndian.Uint64(w))-int64(binary.LittleEndian.Uint64(words[0]))))
		}
	}
	return best, nil
}

// write prints the findings, faults first. It prints findings of level ok only if all is true.
func (r *report) write(w io.Writer, all bool) error {
	order := []level{fault, warning, note, good}
	list := slices.Clone(r.Findings)
	slices.SortStableFunc(list, func(a, b finding) int {
		return slices.Index(order, a.Level) - slices.Index(order, b.Level)
	})
	hosts := map[string]bool{}
	for i := range r.Machines {
		hosts[r.Machines[i].HostID] = true
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	counts := map[level]int{}
	for _, f := range list {
		counts[f.Level]++
		if f.Level == good && !all {
			continue
		}
		where := ""
		if len(hosts) > 1 {
			where = f.Host + ": "
		}
		fmt.Fprintf(t, "%s\t%s\t%s%s\n", f.Level, f.Check, where, f.Found)
		if f.Cure != "" {
			fmt.Fprintf(t, "\t\tcure: %s\n", f.Cure)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	summary := []string{show.Count(r.Faults, "fault"), show.Count(r.Warnings, "warning"),
		show.Count(counts[note], "note"), show.Count(counts[good], "check") + " passed"}
	_, err := fmt.Fprintf(w, "%s on %s\n", strings.Join(summary, ", "), show.Count(len(hosts), "machine"))
	return err
}
