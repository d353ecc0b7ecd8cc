package profile

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// publish merges the reports of all ranks, writes the files and prints the tables.
func (p *profiling) publish(reports []rankReport) error {
	ranks, machines, err := p.merge(reports)
	if err != nil {
		return err
	}
	folder := p.folder()
	if err := profiles.Save(folder, ranks, machines); err != nil {
		return exit.With(exit.IO, err)
	}
	files := []string{filepath.Join(folder, profiles.RanksFile), filepath.Join(folder, profiles.SystemFile)}
	log := p.rank.Process.Opts.Log
	for _, r := range ranks.Ranks {
		for _, why := range r.Skipped {
			log.Warn("a measurement was skipped", "rank", r.Rank, "why", why)
		}
	}
	for _, why := range machines.Skipped {
		log.Warn("a measurement was skipped", "why", why)
	}
	out := p.rank.Process.Opts.Env.Stdout
	if p.flags.json {
		return show.JSON(out, map[string]any{"gpu_profiles": ranks, "system_profile": machines, "files": files})
	}
	if err := showProfile(out, ranks, machines); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nwritten: %s\n", strings.Join(files, ", "))
	return err
}

// merge returns the contents of the two files. The list reports has one element per rank.
func (p *profiling) merge(reports []rankReport) (*profiles.Ranks, *profiles.System, error) {
	origin := profiles.Origin{SchemaVersion: profiles.SchemaVersion, Created: time.Now().UTC().Truncate(time.Second),
		Program: version.Text(), Quick: p.flags.quick}
	ranks, machines := &profiles.Ranks{Origin: origin}, &profiles.System{}
	var fractions []float64
	at := map[string]int{} // index of each machine, by name
	for rank, r := range reports {
		ranks.Ranks = append(ranks.Ranks, r.Rank)
		if r.MemoryFraction > 0 {
			fractions = append(fractions, r.MemoryFraction)
		}
		if r.Host != nil {
			at[r.HostID] = len(machines.Hosts)
			machines.Hosts = append(machines.Hosts, *r.Host)
		}
		if i, known := at[r.HostID]; known {
			machines.Hosts[i].Ranks = append(machines.Hosts[i].Ranks, rank)
		}
	}
	model := p.model
	if len(fractions) == 0 {
		model = ""
	}
	if err := ranks.Rate(model, fractions); err != nil {
		return nil, nil, err
	}
	perSample := make([]float64, len(reports))
	for rank := range reports {
		perSample[rank] = reports[rank].PerSample
	}
	ranks.Prediction = profiles.Predict(p.model, ranks.Scores(), perSample)
	ranks.Seal()
	machines.Origin = ranks.Origin
	machines.Links, machines.AllReduce, machines.Skipped = reports[0].Links, reports[0].AllReduce, reports[0].Skipped
	return ranks, machines, nil
}

// showProfile prints the tables of ranks and machines.
func showProfile(w io.Writer, ranks *profiles.Ranks, machines *profiles.System) error {
	for _, h := range machines.Hosts {
		showHost(w, h)
	}
	fmt.Fprintf(w, "\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t,
		"rank\thost\tdevice\tmodel\ttype\tTFLOP/s\tmemory GB/s\tto device GB/s\tto host GB/s\tmemory\tscore\trelative")
	for _, r := range ranks.Ranks {
		m := r.Measured
		name := r.Device.Model
		if r.GPU != nil {
			name = r.GPU.Name
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%.3g\t%.1f\t%.1f\t%.1f\t%d MB\t%.3g\t%.2f\n", r.Rank, r.Host, r.Device.Name,
			name, m.DType, m.TFLOPS,
			m.Memory.Copy, m.Copies.ToDevice, m.Copies.ToHost, r.MemoryBytes>>20, r.ComputeScore, r.RelativeScore)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	s := ranks.Score
	of := "no model given"
	if s.Model != "" {
		of = "of " + s.Model
	}
	fmt.Fprintf(w, "score = TFLOP/s^%.2f * (memory GB/s / 10)^%.2f; memory-bound fraction of a step %.0f %%: %s\n",
		s.ComputeFraction, s.MemoryFraction, 100*s.MemoryFraction, of)
	if err := showPrediction(w, ranks); err != nil {
		return err
	}
	if err := showLinks(w, machines.Links); err != nil {
		return err
	}
	if err := showAllReduce(w, machines.AllReduce); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nRegistered %d nodes\n", len(ranks.Ranks))
	for _, r := range ranks.Ranks {
		fmt.Fprintln(w, r)
	}
	return nil
}

// table starts a table of numbers.
func table(w io.Writer, title any, columns string) *tabwriter.Writer {
	fmt.Fprintf(w, "\n%v\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, columns)
	return t
}

// showPrediction prints how well the scores predict measured step times.
func showPrediction(w io.Writer, ranks *profiles.Ranks) error {
	p := ranks.Prediction
	if p == nil {
		if len(ranks.Ranks) > 1 {
			fmt.Fprintln(w, "no training step was timed; to compare the scores with step times, add -c FILE or --model NAME and omit --quick")
		}
		return nil
	}
	t := table(w, p, "rank\tms/sample\tmeasured\tpredicted\terror\t")
	for _, r := range p.Ranks {
		fmt.Fprintf(t, "%d\t%.3g\t%.2f\t%.2f\t%+.0f %%\t\n", r.Rank, 1e3*r.SecondsPerSample, r.Measured, r.Predicted,
			100*(r.Predicted/r.Measured-1))
	}
	return t.Flush()
}

// showHost prints the properties of a machine.
func showHost(w io.Writer, h profiles.Host) {
	fmt.Fprintf(w, "%s: %s, %d of %d CPUs usable", h.Name, h.CPU.Model, h.CPU.Usable, h.CPU.Threads)
	if h.CPU.Quota < float64(h.CPU.Usable) {
		fmt.Fprintf(w, " (quota %.2f)", h.CPU.Quota)
	}
	fmt.Fprintf(w, ", %.1f GiB of memory (limit %.1f), triad %.1f GB/s", show.GiB(h.Memory.Total),
		show.GiB(h.Memory.Limit), h.TriadGBytes)
	if h.WSL2 {
		fmt.Fprint(w, ", WSL2")
	}
	if h.Container != "" {
		fmt.Fprintf(w, ", container (%s)", h.Container)
	}
	fmt.Fprintln(w)
	for _, g := range h.GPUs {
		fmt.Fprintf(w, "  %v; %d CUDA cores, PCIe %d x%d, %d NVLinks, %.0f W, driver %s\n", g, g.CUDACores,
			g.PCIe.GenerationMax, g.PCIe.WidthMax, g.NVLinks, g.PowerLimitWatts, g.Driver)
	}
	if h.NoGPU != "" {
		fmt.Fprintf(w, "  no GPU: %s\n", h.NoGPU)
	}
	for _, d := range h.Disks {
		fmt.Fprintf(w, "  disk %s: %s, %.0f GB\n", d.Name, strings.TrimSpace(d.Kind+" "+d.Model), float64(d.Bytes)/1e9)
	}
	if o := h.Output; o != nil {
		cached := ""
		if o.ReadCached {
			cached = " from memory"
		}
		fmt.Fprintf(w, "  %s: writes %.0f MB/s, reads %.0f MB/s%s\n", o.Folder, o.WriteMBytes, o.ReadMBytes, cached)
	}
	for _, n := range h.Networks {
		if !n.Up {
			continue
		}
		speed := "speed unknown"
		if n.SpeedMbits > 0 {
			speed = fmt.Sprintf("%d Mbit/s", n.SpeedMbits)
		}
		fmt.Fprintf(w, "  network %s: %s, %s\n", n.Name, n.Kind, speed)
	}
}

func showLinks(w io.Writer, links []measure.Link) error {
	if len(links) == 0 {
		return nil
	}
	t := table(w, "network between ranks", "ranks A-B\tlatency us\tA to B MB/s\tB to A MB/s\t")
	for _, l := range links {
		if l.Error != "" {
			fmt.Fprintf(t, "%d-%d\t%s\t\t\t\n", l.A, l.B, l.Error)
			continue
		}
		fmt.Fprintf(t, "%d-%d\t%.0f\t%.0f\t%.0f\t\n", l.A, l.B, 1e6*l.LatencySeconds, l.AToB, l.BToA)
	}
	return t.Flush()
}

func showAllReduce(w io.Writer, list []measure.AllReduced) error {
	if len(list) == 0 {
		return nil
	}
	t := table(w, "all-reduce of all ranks", "KiB\tms\tbus GB/s\t")
	for _, r := range list {
		fmt.Fprintf(t, "%d\t%.3f\t%.2f\t\n", r.Bytes>>10, 1e3*r.Seconds, r.BusGBytes)
	}
	return t.Flush()
}
