package schedule

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/balancer/scheduler/ingest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// iterationsOf is the summary of one of Alibaba's files in the JSON output.
type iterationsOf struct {
	File       string  `json:"file"`
	Workers    int     `json:"workers"`
	GPU        float64 `json:"gpu_fraction"` // fraction of a GPU that each worker gets; the mean if the workers differ
	Iterations int     `json:"iterations"`   // number of iterations with a record of every worker
	Spread     float64 `json:"slowest_to_fastest_median"`
	Jitter     float64 `json:"deviation_to_mean"`
	Barrier    any     `json:"slowest_to_mean"`
	Levels     any     `json:"slowest_to_mean_of_medians"`
	P50        float64 `json:"time_to_median_p50"`
	P90        float64 `json:"time_to_median_p90"`
	P99        float64 `json:"time_to_median_p99"`
	Most       float64 `json:"time_to_median_max"`
}

// runAlibaba prints how much the times of equal workers differ. The files do not describe a workload, so the other
// flags would have no effect.
func runAlibaba(a *cli.App, files []string, json bool, flags *pflag.FlagSet) error {
	const command = "schedule ingest"
	var other error
	flags.VisitAll(func(one *pflag.Flag) {
		if other == nil && one.Changed && one.Name != "alibaba" && one.Name != "json" {
			other = exit.Usagef("%s: got --%s with --alibaba, want one of the two", command, one.Name)
		}
	})
	if other != nil {
		return other
	}
	var list []iterationsOf
	var faults []error
	for i, path := range files {
		if slices.Contains(files[:i], path) {
			faults = append(faults, exit.Usagef("%s: --alibaba: got %s twice, want each file once", command, path))
			continue
		}
		faults = append(faults, readFile(command+": --alibaba", path, func(r io.Reader) error {
			it, err := ingest.ReadAlibaba(path, r)
			if err != nil {
				return err
			}
			s, gpu := it.Summary(), 0.0
			for _, w := range it.Workers {
				gpu += w.GPU / float64(len(it.Workers))
			}
			list = append(list, iterationsOf{path, s.Workers, gpu, s.Iterations, s.Spread, s.Jitter,
				show.Number(s.Barrier), show.Number(s.Levels), s.P50, s.P90, s.P99, s.Most})
			return nil
		}))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if json {
		return show.JSON(a.Env.Stdout, struct {
			Iterations []iterationsOf `json:"iterations"`
		}{list})
	}
	_, err := io.WriteString(a.Env.Stdout, alibabaText(list))
	return err
}

// alibabaText has one column for each file.
func alibabaText(list []iterationsOf) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, value func(s *iterationsOf) string) {
		fmt.Fprint(t, name)
		for i := range list {
			fmt.Fprint(t, "\t"+value(&list[i]))
		}
		fmt.Fprintln(t)
	}
	ratio := func(v any) string {
		if x, ok := v.(float64); ok {
			return fmt.Sprintf("%.3f", x)
		}
		return "-" // no iteration has a record of every worker
	}
	row("file", func(s *iterationsOf) string { return show.Foreign(s.File) })
	row("workers", func(s *iterationsOf) string { return strconv.Itoa(s.Workers) })
	row("fraction of a GPU for each worker", func(s *iterationsOf) string { return fmt.Sprintf("%.3g", s.GPU) })
	row("iterations that all workers have", func(s *iterationsOf) string { return strconv.Itoa(s.Iterations) })
	row("median of the slowest worker / median of the fastest", func(s *iterationsOf) string { return ratio(s.Spread) })
	row("deviation of a worker's times / their mean, median over workers", func(s *iterationsOf) string {
		return fmt.Sprintf("%.1f %%", 100*s.Jitter)
	})
	row("slowest worker of an iteration / mean of its workers, mean", func(s *iterationsOf) string {
		return ratio(s.Barrier)
	})
	row("the same, if each worker always takes its median", func(s *iterationsOf) string { return ratio(s.Levels) })
	row("time / median of the worker: 90th percentile", func(s *iterationsOf) string { return ratio(s.P90) })
	row("time / median of the worker: 99th percentile", func(s *iterationsOf) string { return ratio(s.P99) })
	row("time / median of the worker: largest", func(s *iterationsOf) string { return ratio(s.Most) })
	t.Flush() // no error: the table is written to memory
	return b.String()
}
