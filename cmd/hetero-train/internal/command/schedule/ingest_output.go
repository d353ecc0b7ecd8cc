package schedule

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/hetero-train/hetero-train/balancer/scheduler/features"
	"github.com/hetero-train/hetero-train/balancer/scheduler/ingest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// The JSON output of ingest and its parts.
type (
	ingested struct {
		Types      []ingestedType    `json:"gpu_types"`
		Machines   []ingestedMachine `json:"machines"`
		GPUs       []ingestedRow     `json:"gpus"`
		Kinds      []ingestedKind    `json:"kinds"`
		Jobs       []ingestedRow     `json:"jobs"`
		Speeds     []ingestedSpeed   `json:"speeds"`
		Pairs      int               `json:"pairs"` // number of speeds of two jobs that share GPUs
		Ranges     []ingestedRange   `json:"ranges"`
		Missing    []ingestedMissing `json:"missing"`
		Given      []ingestedMissing `json:"given"`      // missing values that --default replaced
		Simulation string            `json:"simulation"` // reason why the input cannot be simulated; "" if it can
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
		Steps   float64                 `json:"estimate_steps,omitempty"` // estimate for the policies; 0: not stated
		Error   float64                 `json:"estimate_error,omitempty"` // relative error; 0: not stated
		Facts   map[string]ingestedFact `json:"facts"`                    // by the names of the facts
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
		Needed bool   `json:"needed"` // needed by the simulator
	}
)

func ingestDocument(d *ingest.Data, ranges *features.Ranges, given []ingest.Missing) ingested {
	n := show.Number[float64]
	out := ingested{Types: []ingestedType{}, Machines: []ingestedMachine{}, GPUs: []ingestedRow{},
		Kinds: []ingestedKind{}, Jobs: []ingestedRow{}, Speeds: []ingestedSpeed{},
		Ranges: rangesList(d, ranges), Missing: missingList(d.Missing()), Given: missingList(given),
		Simulation: obstacleTo(d)}
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
		out.GPUs = append(out.GPUs,
			ingestedRow{Name: gpu.Name, Of: c.Types[gpu.Type].Name, Facts: facts(ranges.GPU(c, g))})
	}
	for _, k := range w.Kinds {
		out.Kinds = append(out.Kinds, ingestedKind{k.Name, k.Class.String(), n(k.GPUMemory), n(k.Save), n(k.Load)})
	}
	for i, j := range w.Jobs {
		out.Jobs = append(out.Jobs, ingestedRow{Name: j.Name, Of: w.Kinds[j.Kind].Name, Arrival: n(j.Arrival),
			Steps: j.Estimate, Error: j.Error, Facts: facts(ranges.Job(w, i))})
	}
	if d.Speeds != nil {
		out.Pairs = len(d.Speeds.Pairs)
		for k, kind := range d.Speeds.Kinds {
			for t, rates := range kind.Types {
				for _, r := range rates {
					out.Speeds = append(out.Speeds, ingestedSpeed{w.Kinds[k].Name, c.Types[t].Name, r.GPUs, r.Packed,
						r.Spread})
				}
			}
		}
	}
	return out
}

// rangesList lists the ranges of those facts that rows of the input have.
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

// obstacleTo returns the reason why the input cannot be simulated, or "".
func obstacleTo(d *ingest.Data) string {
	if err := d.Check(); err != nil {
		return err.Error()
	}
	return ""
}

// ingestText returns the tables for the terminal, each with at most most rows, or with all rows if most is 0.
func ingestText(d *ingest.Data, ranges *features.Ranges, given []ingest.Missing, most int) string {
	doc := ingestDocument(d, ranges, given)
	var b strings.Builder
	table := func(head string, rows int, row func(i int) []string) { writeTable(&b, head, rows, most, row) }
	fmt.Fprintf(&b,
		"types of GPUs: %d | machines: %d | GPUs: %d | kinds: %d | jobs: %d | speeds: %d | speeds of pairs: %d\n",
		len(doc.Types), len(doc.Machines), len(doc.GPUs), len(doc.Kinds), len(doc.Jobs), len(doc.Speeds), doc.Pairs)
	table("machine\tCPU cores\tmemory\tnetwork\tGPUs", len(doc.Machines), func(i int) []string {
		m := &d.Cluster.Machines[i]
		return []string{show.Foreign(m.Name), amount(m.CPUs, "cores"), amount(m.Memory, "bytes"),
			amount(m.Network, "bytes/s"), strconv.Itoa(len(m.GPUs))}
	})
	if len(doc.GPUs) > 0 {
		table("GPU\ttype"+heads(ranges.GPU(&d.Cluster, 0)), len(doc.GPUs), func(i int) []string {
			return append([]string{show.Foreign(doc.GPUs[i].Name), show.Foreign(doc.GPUs[i].Of)},
				cells(ranges.GPU(&d.Cluster, i))...)
		})
	} else {
		table("type of GPU\tmemory\tbandwidth\tcompute", len(doc.Types), func(i int) []string {
			t := &d.Cluster.Types[i]
			return []string{show.Foreign(t.Name), amount(t.Memory, "bytes"), amount(t.Bandwidth, "bytes/s"),
				amount(t.Compute, "FLOP/s")}
		})
	}
	table("kind\tclass\tGPU memory\tsave\tload", len(doc.Kinds), func(i int) []string {
		k := &d.Workload.Kinds[i]
		return []string{show.Foreign(k.Name), k.Class.String(), amount(k.GPUMemory, "bytes"), amount(k.Save, "s"),
			amount(k.Load, "s")}
	})
	if len(doc.Jobs) > 0 {
		table("job\tkind\tarrival"+heads(ranges.Job(&d.Workload, 0)), len(doc.Jobs), func(i int) []string {
			return append([]string{show.Foreign(doc.Jobs[i].Name), show.Foreign(doc.Jobs[i].Of),
				amount(d.Workload.Jobs[i].Arrival, "s")}, cells(ranges.Job(&d.Workload, i))...)
		})
	}
	table("speeds: kind\ttype of GPU\tGPUs\tsteps/s\tover machines", len(doc.Speeds), func(i int) []string {
		s := &doc.Speeds[i]
		return []string{show.Foreign(s.Kind), show.Foreign(s.GPUType), strconv.Itoa(s.GPUs),
			fmt.Sprintf("%.4g", s.Speed), fmt.Sprintf("%.4g", s.Spread)}
	})
	table("range\tmaps to 0\tmaps to 1\tscale\torigin", len(doc.Ranges), func(i int) []string {
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
		b.WriteString("simulation: not possible: the simulator needs figures that are missing; add them to the input, or use --default TABLE.COLUMN=VALUE\n")
		if err := d.CheckStated(); err != nil {
			fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		}
	default:
		fmt.Fprintf(&b, "simulation: not possible:\n  %s\n", strings.ReplaceAll(doc.Simulation, "\n", "\n  "))
	}
	return b.String()
}

// writeTable prints at most most rows of a table, or all if most is 0. It prints nothing if the table has no rows.
func writeTable(b *strings.Builder, head string, rows, most int, row func(i int) []string) {
	if rows == 0 {
		return
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	shown := rows
	if most > 0 {
		shown = min(rows, most)
	}
	for i := range shown {
		fmt.Fprintln(t, strings.Join(row(i), "\t"))
	}
	t.Flush() // no error: the table is written to memory
	if shown < rows {
		fmt.Fprintf(b, "%d more rows; --rows 0 prints all\n", rows-shown)
	}
}

// shown reports whether a fact has its own column. The class of a job has none, because the row of the job's kind shows
// it.
func shown(v features.Value) bool {
	return !slices.Contains([]string{"job.simulation", "job.learning", "job.processing"}, v.Name)
}

// heads returns the column heads of facts.
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

// cells returns the cells of facts: values and normalised values, such as "16 GiB (0.32)".
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

// amount shows a number with its unit, or a dash for NaN.
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
