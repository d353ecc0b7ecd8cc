package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/system"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// watchInterval is the time between two views. The GPU driver updates most values a few times a second.
const watchInterval = time.Second

// checkWatch refuses flags and settings that have no effect with --watch.
func checkWatch(cmd *cobra.Command, a *cli.App) error {
	var ignored []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "watch" && f.Name != "json" {
			ignored = append(ignored, "--"+f.Name)
		}
	})
	if len(ignored) > 0 {
		return exit.Usagef("profile --watch only reads this machine: remove %s", strings.Join(ignored, ", "))
	}
	return a.RefuseConfig(cmd, "--watch reads no configuration")
}

// watchMachine shows the GPUs and the links of this machine until the context ends.
func watchMachine(ctx context.Context, a *cli.App, asJSON bool) error {
	gpus := hardware.Open()
	defer gpus.Close()
	w, err := openWatch(gpus, system.NewLinkSampler())
	if err != nil {
		return err
	}
	defer w.close()
	screen := logs.NewView(a.Env.Stdout)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	w.look() // first reading, because rates need a previous one
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		v := w.look()
		if asJSON {
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if _, err := a.Env.Stdout.Write(append(text, '\n')); err != nil {
				return err
			}
			continue
		}
		if err := screen.Show(v.text()); err != nil {
			return err
		}
	}
}

// watch reads the GPUs and links of a machine.
type watch struct {
	gpus    []watchedGPU
	noGPU   string
	sources []watchedLinks
}

type watchedGPU struct {
	gpu   hardware.GPU
	probe *hardware.Probe
}

// watchedLinks is a source of link measurements with its name in the table.
type watchedLinks struct {
	of      string
	source  hardware.LinkSource
	traffic []telemetry.Traffic
}

func openWatch(gpus *hardware.GPUs, network hardware.LinkSource) (*watch, error) {
	w := &watch{noGPU: gpus.Reason()}
	add := func(of string, source hardware.LinkSource) {
		w.sources = append(w.sources, watchedLinks{of, source, make([]telemetry.Traffic, len(source.Links()))})
	}
	for _, g := range gpus.All() {
		probe, err := gpus.Probe(g.Index, system.Limits{})
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.gpus = append(w.gpus, watchedGPU{g, probe})
		source, err := gpus.LinkSource(g.Index, true)
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		add(fmt.Sprintf("GPU %d", g.Index), source)
	}
	add("machine", network)
	return w, nil
}

func (w *watch) close() (err error) {
	for _, g := range w.gpus {
		err = errors.Join(err, g.probe.Close())
	}
	return err
}

// machineView contains the values of one moment. Values that cannot be read are missing in JSON.
type machineView struct {
	Time  time.Time  `json:"time"`
	GPUs  []gpuView  `json:"gpus"`
	NoGPU string     `json:"no_gpu,omitempty"` // reason why there is no GPU
	Links []linkView `json:"links"`
}

type gpuView struct {
	Index       int      `json:"index"`
	Name        string   `json:"name"`
	Utilization *float64 `json:"utilization_percent,omitempty"`
	Memory      *float64 `json:"memory_percent,omitempty"`
	Temperature *float64 `json:"temperature_celsius,omitempty"`
	Power       *float64 `json:"power_watts,omitempty"`
	Clock       *float64 `json:"clock_percent,omitempty"`
	Throttled   []string `json:"throttled,omitempty"` // reasons why the clock is reduced
	Error       string   `json:"error,omitempty"`     // error of a GPU that no longer answers
}

// linkView is the traffic of a link in bytes/s.
type linkView struct {
	Of string `json:"of"` // owner of the link, for example "machine" or "GPU 0"
	telemetry.Link
	Sent     *float64 `json:"sent,omitempty"`
	Received *float64 `json:"received,omitempty"`
}

func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// look reads all values of GPUs and links.
func (w *watch) look() machineView {
	v := machineView{Time: time.Now(), NoGPU: w.noGPU, GPUs: []gpuView{}, Links: []linkView{}}
	for _, g := range w.gpus {
		s, err := g.probe.Sample()
		row := gpuView{Index: g.gpu.Index, Name: g.gpu.Name, Utilization: known(s[telemetry.Utilization]),
			Memory:      known(s[telemetry.Memory]),
			Temperature: known(s[telemetry.Temperature]), Power: known(s[telemetry.Power]),
			Clock: known(s[telemetry.Clock])}
		for _, sensor := range []telemetry.Sensor{telemetry.HardwareSlowdown, telemetry.ThermalThrottling,
			telemetry.PowerLimit} {
			if s[sensor] == 1 {
				row.Throttled = append(row.Throttled, telemetry.Declared[sensor].Name)
			}
		}
		if err != nil {
			row.Error = err.Error()
		}
		v.GPUs = append(v.GPUs, row)
	}
	for _, s := range w.sources {
		s.source.Sample(s.traffic)
		for i, l := range s.source.Links() {
			v.Links = append(v.Links, linkView{s.of, l, known(s.traffic[i].Sent), known(s.traffic[i].Received)})
		}
	}
	return v
}

// bases explains how the values are measured.
var bases = map[telemetry.Basis]string{telemetry.BasisCounter: "byte counter",
	telemetry.BasisSample: "means over 20 ms"}

// text returns the tables of GPUs and links.
func (v *machineView) text() string {
	var b strings.Builder
	value := func(p *float64) string {
		if p == nil {
			return "-"
		}
		return strconv.FormatFloat(*p, 'f', 0, 64)
	}
	fmt.Fprintf(&b, "%s\n\n", v.Time.Format(time.DateTime))
	if v.NoGPU != "" {
		fmt.Fprintf(&b, "no GPU: %s\n", v.NoGPU)
	}
	if len(v.GPUs) > 0 {
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "GPU\tname\tuse %\tmemory %\t°C\tW\tclock %\tthrottled")
		for _, g := range v.GPUs {
			why := strings.Join(g.Throttled, ", ")
			if g.Error != "" {
				why = g.Error
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Index, g.Name, value(g.Utilization), value(g.Memory),
				value(g.Temperature), value(g.Power), value(g.Clock), show.OrDash(why))
		}
		_ = t.Flush() // no error: the table is written to memory
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "link\tof\tkind\tsent\treceived\tlimit\tin use\tmeasured by")
	for _, l := range v.Links {
		limit := known(l.Limit)
		if l.Limit == 0 {
			limit = nil
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.Of, l.Kind, rate(l.Sent), rate(l.Received),
			rate(limit), l.use(), bases[l.Basis])
	}
	_ = t.Flush()
	return b.String()
}

// use returns the traffic of the busier direction, in percent of the limit of the link.
func (l *linkView) use() string {
	most := -1.0
	for _, v := range []*float64{l.Sent, l.Received} {
		if v != nil && l.Limit > 0 {
			most = max(most, *v/l.Limit)
		}
	}
	if most < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*most)
}

// rate formats a number of bytes/s, for example as "1.25 GB/s".
func rate(v *float64) string {
	if v == nil {
		return "-"
	}
	for _, u := range []struct {
		size   float64
		prefix string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if *v >= u.size {
			return fmt.Sprintf("%.3g %sB/s", *v/u.size, u.prefix)
		}
	}
	return fmt.Sprintf("%.0f B/s", *v)
}
