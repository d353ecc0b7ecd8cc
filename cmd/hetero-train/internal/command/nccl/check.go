package nccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exchange"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/nccl"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

const ncclCheckLong = `Connect all ranks with NCCL, show the software versions and the GPU of each rank, and measure:

  all ranks      bandwidth of all-reduce by size
  rank pairs     latency of a one-number all-reduce and bandwidth of a 32 MiB all-reduce

With up to 16 ranks, the command measures every pair of ranks. With more ranks, it measures only pairs of neighbours. For
each rank, the command takes the bandwidth of its best link. A rank is reported as slow if this value is below 70 % of the median
over all ranks.`

// rankNCCL is the report of one rank for command nccl check.
type rankNCCL struct {
	Rank    int    `json:"rank"`
	Host    string `json:"host"`
	Device  string `json:"device"`
	Model   string `json:"model"`
	BusID   string `json:"bus_id,omitempty"` // this and the next fields come from NVML, if it is available
	PCIe    string `json:"pcie,omitempty"`
	NVLinks int    `json:"nvlinks"`
	Driver  string `json:"driver,omitempty"`
	NCCL    string `json:"nccl"`
}

// ncclFound is the output of command nccl check.
type ncclFound struct {
	Ranks     []rankNCCL           `json:"ranks"`
	AllReduce []measure.AllReduced `json:"all_reduce"`
	Pairs     []nccl.Pair          `json:"pairs"`
	Slow      []int                `json:"slow_ranks"`
}

func newNCCLCheck(a *cli.App) *cobra.Command {
	var asJSON bool
	assigned := new(cli.LauncherFlags)
	cmd := &cobra.Command{Use: "check", Short: "Check NCCL versions, GPUs and the links between ranks",
		Long: ncclCheckLong, Args: cli.NoArguments,
		Example: "  hetero-train nccl check --nproc-per-node 8\n  hetero-train nccl check --nproc-per-node 8 --json"}
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object on one line of standard output instead of tables")
	cli.AddLauncherFlags(assigned, cmd, a)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withNCCL(cmd.Context(), a, "nccl check", assigned,
			func(ctx context.Context, x *exchange.Exchange) error {
				found, err := checkNCCLOf(ctx, x)
				if err != nil || !x.Rank.Team.Leads() {
					return err
				}
				if asJSON {
					return show.JSON(a.Env.Stdout, found)
				}
				return found.write(a.Env.Stdout)
			})
	}
	return cmd
}

// checkNCCLOf performs the measurements. All ranks must call it. Rank 0 gets the result.
func checkNCCLOf(ctx context.Context, x *exchange.Exchange) (found ncclFound, err error) {
	if found.Ranks, err = introduce(ctx, x); err != nil {
		return found, err
	}
	t, log := x.Rank.Team, x.Rank.Process.Opts.Log
	log.Info("measuring", "what", "all-reduce over all ranks")
	everyone := make([]int, t.Place.WorldSize)
	for i := range everyone {
		everyone[i] = i
	}
	if found.AllReduce, err = curve(ctx, x, "check", everyone); err != nil {
		return found, err
	}
	for _, p := range nccl.Pairs(t.Place.WorldSize) {
		log.Info("measuring", "what", "a pair", "ranks", fmt.Sprint(p))
		pair, err := pair(ctx, x, p)
		if err != nil {
			return found, err
		}
		words, err := t.Group.Gather(ctx, fmt.Sprintf("nccl pair %d-%d", p[0], p[1]), pair)
		if err != nil {
			return found, err
		}
		var one nccl.Pair
		if err := json.Unmarshal(words[p[0]], &one); err != nil {
			return found, fmt.Errorf("pair %v: %w", p, err)
		}
		found.Pairs = append(found.Pairs, one)
	}
	found.Slow = nccl.SlowRanks(t.Place.WorldSize, found.Pairs)
	return found, nil
}

// introduce gathers the properties of all ranks.
func introduce(ctx context.Context, x *exchange.Exchange) ([]rankNCCL, error) {
	k := x.Rank
	info := k.Device.Info()
	own := rankNCCL{Rank: k.Process.Opts.Assignment.Rank,
		Host: k.Team.Group.Members()[k.Process.Opts.Assignment.Rank].Host, Device: info.Name, Model: info.Model,
		NCCL: exchange.LoadedNCCL()}
	gpus := hardware.Open()
	defer gpus.Close()
	if dev, ok := k.Device.(device.AddressedDevice); ok && dev.Index() < len(gpus.All()) {
		g := gpus.All()[dev.Index()]
		if g.Name == info.Model { // compare models: NVML orders GPUs by bus position, CUDA may use another order
			own.BusID, own.NVLinks, own.Driver = g.BusID, g.NVLinks, g.Driver
			own.PCIe = fmt.Sprintf("%d x%d", g.PCIe.GenerationMax, g.PCIe.WidthMax)
		}
	}
	return process.GatherAll(ctx, k.Team, "nccl ranks", "nccl ranks: rank", own)
}

const (
	pairBytes  = 32 << 20
	pairRounds = 10
)

// pair measures the connection between two ranks. The other ranks do nothing.
func pair(ctx context.Context, x *exchange.Exchange, p [2]int) (word []byte, err error) {
	if own := x.Rank.Process.Opts.Assignment.Rank; own != p[0] && own != p[1] {
		return nil, nil
	}
	comm, err := among(ctx, x, fmt.Sprintf("pair %d-%d", p[0], p[1]), p[:])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	memory, err := x.Rank.Device.Alloc(pairBytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, memory.Free()) }()
	found := nccl.Pair{Ranks: p}
	for _, m := range []struct {
		bytes int64
		put   func(time.Duration)
	}{
		{4, func(d time.Duration) { found.LatencySeconds = d.Seconds() }},
		{pairBytes, func(d time.Duration) { found.BusGBytes = collective.BusBytesPerSecond(2, pairBytes, d) / 1e9 }},
	} {
		times, err := collective.MeasureAllReduce(ctx, comm, device.Region{Buffer: memory, Bytes: m.bytes}, pairRounds)
		if err != nil {
			return nil, err
		}
		slices.Sort(times)
		m.put(times[len(times)/2])
	}
	return json.Marshal(found)
}

// write prints the result for a terminal.
func (f ncclFound) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rank\thost\tdevice\tmodel\tbus\tPCIe\tNVLinks\tNCCL")
	for _, r := range f.Ranks {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", r.Rank, r.Host, r.Device, r.Model, show.OrDash(r.BusID),
			show.OrDash(r.PCIe), r.NVLinks, r.NCCL)
	}
	fmt.Fprintln(t, "\nall-reduce\ttime\tbus bandwidth")
	for _, s := range f.AllReduce {
		fmt.Fprintf(t, "%d KiB\t%.1f us\t%.2f GB/s\n", s.Bytes>>10, 1e6*s.Seconds, s.BusGBytes)
	}
	fmt.Fprintln(t, "\nranks\tlatency\tbus bandwidth")
	for _, p := range f.Pairs {
		fmt.Fprintf(t, "%d - %d\t%.1f us\t%.2f GB/s\n", p.Ranks[0], p.Ranks[1], 1e6*p.LatencySeconds, p.BusGBytes)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := "no rank is slow"
	if len(f.Slow) > 0 {
		verdict = "slow: rank " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(f.Slow), "[]")), ", ")
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdict)
	return err
}
