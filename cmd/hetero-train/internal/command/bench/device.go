package bench

import (
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/lab"
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

// deviceFacts returns the description of the device for JSON output.
func deviceFacts(info device.Info) map[string]any {
	return map[string]any{"device": info.Name, "device_model": info.Model, "isa": info.ISA, "threads": info.Threads,
		"program": version.Text()}
}
