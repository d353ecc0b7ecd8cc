package bench

import (
	"errors"
	"fmt"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/lab"
)

const benchLong = `Measure the limits of the hardware and the speed of the program.

  bench peak   arithmetic and memory limits of the hardware
  bench train  training steps on synthetic data
  bench sweep  latency and throughput of training steps by batch size
  bench ops    every op of a model, compared with its hardware limit
  bench data   reading, decoding and augmentation of images

With --json, each command prints one JSON object as the last line of standard output. All other output goes to standard error.`

// New returns the command that measures the speed of the hardware and of the program.
func New(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure hardware limits, training steps, ops and data loading",
		Long:  benchLong,
		Example: `  hetero-train bench peak
  hetero-train bench train --model resnet50 --image-size 224 --batch-size 32 --precision f32 --steps 6 --json
  hetero-train bench sweep --model resnet50 --image-size 32 --classes 10 --precision f32,bf16
  hetero-train bench ops --model resnet50 --image-size 32 --batch-size 128 --precision bf16`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range []*cobra.Command{newBenchPeak(a), newBenchTrain(a), newBenchSweep(a), newBenchOps(a),
		newBenchData(a)} {
		run := sub.RunE
		sub.RunE = func(cmd *cobra.Command, args []string) error { return exit.Classify(cmd.Context(), run(cmd, args)) }
		cmd.AddCommand(cli.WithoutConfig(sub, "a benchmark has its own flags, so that its figures compare; to time another configuration, use command train with train.steps"))
	}
	return cmd
}

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

// deviceFlags are the flags that select the device of a benchmark.
type deviceFlags struct {
	kind    string
	threads int
	json    bool
	env     session.Environment
}

func (f *deviceFlags) add(cmd *cobra.Command, env session.Environment) {
	f.addKind(cmd, env)
	cmd.Flags().IntVar(&f.threads, "threads", 0,
		"threads of a CPU device; 0: the CPU quota, limited by OMP_NUM_THREADS")
}

// addKind adds the flags that all benchmarks of a device have.
func (f *deviceFlags) addKind(cmd *cobra.Command, env session.Environment) {
	f.env = env
	cmd.Flags().StringVar(&f.kind, "device", "auto", "device to measure: `auto|cpu|cuda|reference|null`")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object on one line of standard output")
}

// open opens the device. A benchmark uses exactly the given number of threads. A training run would adapt the number,
// because its configuration may come from another machine.
func (f *deviceFlags) open() (device.Device, error) {
	if most := runtime.NumCPU(); f.threads < 0 || f.threads > most {
		return nil, exit.Usagef("--threads: got %d, want 0 to %d, the number of CPUs of this process", f.threads, most)
	}
	assigned, err := lab.Find(f.env.Lookup)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	dev, err := devices.Open(f.kind, devices.Alone(f.threads))
	if err != nil {
		return nil, err
	}
	// This also adds the slowdown to the model name of the device.
	if err := (&session.TestbedSetup{Setup: assigned}).Slow(dev, nil); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

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

// deviceFacts returns the description of the device for JSON output.
func deviceFacts(info device.Info) map[string]any {
	return map[string]any{"device": info.Name, "device_model": info.Model, "isa": info.ISA, "threads": info.Threads,
		"program": version.Text()}
}
