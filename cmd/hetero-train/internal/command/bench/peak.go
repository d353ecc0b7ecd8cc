package bench

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/device"
)

// peaks lists the limits of the hardware that bench peak measures, with the duration of each measurement.
var peaks = []struct {
	what device.Peak
	name string
	key  string
	unit string
}{
	{device.PeakF32, "f32 multiply-adds", "f32_gflops", "GFLOP/s"},
	{device.PeakBF16, "bf16 dot products", "bf16_gflops", "GFLOP/s"},
	{device.PeakF16, "f16 dot products", "f16_gflops", "GFLOP/s"},
	{device.PeakRead, "memory read", "read_gbytes_per_second", "GB/s"},
	{device.PeakWrite, "memory write", "write_gbytes_per_second", "GB/s"},
	{device.PeakCopy, "memory copy (read + written)", "copy_gbytes_per_second", "GB/s"},
}

// The result for a limit is the best of peakRepeats measurements, which together take peakTime.
const (
	peakTime    = time.Second
	peakRepeats = 5
)

func newBenchPeak(a *cli.App) *cobra.Command {
	f := new(deviceFlags)
	cmd := &cobra.Command{Use: "peak", Short: "Measure arithmetic and memory limits of the device",
		Example: "  hetero-train bench peak --threads 1 --json", Args: cli.NoArguments}
	f.add(cmd, a.Env)
	cmd.RunE = func(*cobra.Command, []string) error {
		dev, err := f.open()
		if err != nil {
			return err
		}
		defer dev.Close()
		m, ok := dev.(device.PeakMeasurer)
		if !ok {
			return exit.Usagef("bench peak: device %s cannot measure its limits", dev.Info().Name)
		}
		values, err := measurePeaks(a, m)
		if err != nil {
			return exit.With(exit.Device, err)
		}
		if f.json {
			out := deviceFacts(dev.Info())
			for _, p := range peaks {
				v, ok := values[p.what]
				if !ok {
					continue
				}
				out[p.key] = v.PerSecond / 1e9
				out[p.key+"_repeats"] = v.Repeats
				if v.By != "" {
					out[p.key+"_by"] = v.By
				}
			}
			return show.JSON(a.Env.Stdout, out)
		}
		info := dev.Info()
		fmt.Fprintf(a.Env.Stdout, "%s: %s, %s, %d threads\n", info.Name, info.Model, info.ISA, info.Threads)
		t := tabwriter.NewWriter(a.Env.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, p := range peaks {
			if v, ok := values[p.what]; ok {
				fmt.Fprintf(t, "%s\t%.1f %s\t%s\tbest of %d\t\n", p.name, v.PerSecond/1e9, p.unit, v.By, v.Repeats)
			} else {
				fmt.Fprintf(t, "%s\tnot supported by this hardware\t\t\t\n", p.name)
			}
		}
		return t.Flush()
	}
	return cmd
}

// measurePeaks measures all limits that the hardware has.
func measurePeaks(a *cli.App, m device.PeakMeasurer) (map[device.Peak]device.Reached, error) {
	values := map[device.Peak]device.Reached{}
	for i, p := range peaks {
		a.Progress(fmt.Sprintf("measuring limit %d/%d: %s", i+1, len(peaks), p.name))
		v, err := measurePeak(m, p.what)
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", p.name, err)
		}
		if v.PerSecond > 0 {
			values[p.what] = v
		}
	}
	return values, nil
}

// measurePeak measures one limit of the hardware. It returns 0 if the hardware lacks the instruction that this limit
// needs.
func measurePeak(m device.PeakMeasurer, what device.Peak) (device.Reached, error) {
	v, err := device.MeasureBest(m, what, peakRepeats, peakTime)
	if errors.Is(err, device.ErrUnsupported) {
		return device.Reached{}, nil
	}
	return v, err
}
