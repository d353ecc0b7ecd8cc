package devices

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/system"
)

const devicesLong = `Show the hardware for training.

The output lists the CPUs and memory that this process may use, the GPUs of this machine, and the devices that the program can use,
each with its precisions. The line "auto" shows what device.kind = "auto" and train.precision = "auto" select on this machine. The
last lines count the kernels that earlier runs chose by timing; --json lists each of them with the measured times. The command does
not open GPUs, so it does not disturb running jobs.`

// Report is the output of command devices.
type Report struct {
	Program string         `json:"program"`
	Host    hostReport     `json:"host"`
	GPUs    []hardware.GPU `json:"gpus"`
	NoGPU   string         `json:"no_gpu,omitempty"` // reason why no GPU was found
	Devices []deviceChoice `json:"devices"`
	Kernels []kernelChoice `json:"kernels,omitempty"` // kernels that earlier runs chose by timing
	Notes   []string       `json:"notes,omitempty"`   // properties that could not be determined
}

// hostReport contains the properties of this machine that matter for training.
type hostReport struct {
	Name             string   `json:"name"`
	Kernel           string   `json:"kernel"`
	Container        string   `json:"container,omitempty"`
	CPU              string   `json:"cpu"`
	Cores            int      `json:"cores"` // number of physical cores; 0: unknown
	Threads          int      `json:"threads"`
	UsableThreads    int      `json:"usable_threads"`
	CPUQuota         float64  `json:"cpu_quota"` // CPU quota in seconds of CPU time per second
	Features         []string `json:"features"`
	MemoryBytes      int64    `json:"memory_bytes"`
	MemoryLimitBytes int64    `json:"memory_limit_bytes"` // memory limit of this process
	AvailableBytes   int64    `json:"available_bytes"`    // currently available memory; 0: unknown
}

// deviceChoice describes a device. If there is no device of a kind, it contains the reason.
type deviceChoice struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Auto        bool     `json:"auto"` // true if device.kind = "auto" selects this device
	Available   bool     `json:"available"`
	Reason      string   `json:"reason,omitempty"`
	Model       string   `json:"model,omitempty"`
	ISA         string   `json:"isa,omitempty"`
	Threads     int      `json:"threads,omitempty"`
	MemoryBytes int64    `json:"memory_bytes,omitempty"`
	Precisions  []string `json:"precisions,omitempty"`
	// element type that train.precision = "auto" selects, or notYetTimed
	AutoPrecision string `json:"auto_precision,omitempty"`
}

// notYetTimed is shown instead of an element type if the first run still has to select the type by timing.
const notYetTimed = "timed"

// New returns the command that lists the devices of this machine.
func New(a *cli.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List CPUs, GPUs, memory, and the devices to train on",
		Long:  devicesLong,
		Example: `  hetero-train devices
  hetero-train devices --json`,
		Args: cli.NoArguments,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object on one line of standard output")
	cmd.RunE = func(*cobra.Command, []string) error {
		r := findDevices()
		if asJSON {
			return show.JSON(a.Env.Stdout, r)
		}
		return r.write(a.Env.Stdout)
	}
	return cmd
}

// findDevices returns a description of each device.
func findDevices() Report {
	r := Report{Program: version.Text(), GPUs: []hardware.GPU{}}
	host, err := system.Detect()
	if err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	c, m := host.CPU, host.Memory
	r.Host = hostReport{Name: host.Name, Kernel: host.Kernel, Container: host.Container, CPU: c.Model, Cores: c.Cores,
		Threads: c.Threads, UsableThreads: c.Usable,
		CPUQuota: c.Quota, Features: c.Features, MemoryBytes: m.Total, MemoryLimitBytes: m.Limit,
		AvailableBytes: m.Available}
	gpus := hardware.Open()
	defer gpus.Close()
	r.GPUs, r.NoGPU = append(r.GPUs, gpus.All()...), gpus.Reason()
	r.Notes = append(r.Notes, gpus.Warnings()...)
	auto := false
	for _, d := range devices.Drivers {
		count, wrong := 1, error(nil)
		if all, ok := d.Driver.(device.Counter); ok {
			count, wrong = all.Count()
			count = max(count, 1) // if there is no device, the attempt to open the first one returns the reason
		}
		for index := range count {
			choice := describeDevice(d.Driver, index, host)
			if wrong != nil && choice.Available { // training would refuse this device, too
				choice = deviceChoice{Name: d.Kind(), Kind: d.Kind(),
					Reason: strings.TrimPrefix(strings.TrimPrefix(wrong.Error(), device.ErrUnavailable.Error()+": "),
						d.Kind()+": ")}
			}
			choice.Auto = d.Automatic && choice.Available && !auto
			auto = auto || choice.Auto
			r.Devices = append(r.Devices, choice)
		}
	}
	r.Kernels, err = chosenKernels()
	if err != nil {
		r.Notes = append(r.Notes, err.Error())
	}
	return r
}

// infoOf returns the properties of a device. It opens the device only if other processes lose no resources by this.
func infoOf(d device.Driver, index int) (device.Info, error) {
	if knows, ok := d.(device.Describer); ok {
		return knows.Describe(index)
	}
	dev, err := d.Open(index, device.Options{})
	if err != nil {
		return device.Info{}, err
	}
	return dev.Info(), dev.Close()
}

func describeDevice(d device.Driver, index int, host system.Host) deviceChoice {
	choice := deviceChoice{Name: d.Kind(), Kind: d.Kind()}
	info, err := infoOf(d, index)
	if err != nil {
		choice.Reason = strings.TrimPrefix(err.Error(), d.Kind()+": ")
		return choice
	}
	choice.Available, choice.Name, choice.Model, choice.ISA, choice.Threads, choice.MemoryBytes = true, info.Name,
		info.Model, info.ISA, info.Threads, info.MemoryBytes
	for _, name := range []string{"f32", "bf16", "fp16"} {
		if _, err := devices.Precision(name, info); err == nil {
			choice.Precisions = append(choice.Precisions, name)
		}
	}
	types, timed := devices.AutoTypes(info)
	if choice.AutoPrecision = types[0].String(); timed {
		kept, err := devices.KeptType(hardware.Identify(info, host, nil).Type, types)
		if choice.AutoPrecision = kept; kept == "" || err != nil {
			choice.AutoPrecision = notYetTimed
		}
	}
	return choice
}

func (r Report) write(w io.Writer) error {
	h := r.Host
	fmt.Fprintf(w, "host %s: %s %s", show.OrDash(h.Name), platform.System, show.OrDash(h.Kernel))
	if h.Container != "" {
		fmt.Fprintf(w, ", in a container (%s)", h.Container)
	}
	cores := ""
	if h.Cores > 0 {
		cores = fmt.Sprintf("%d cores, ", h.Cores)
	}
	fmt.Fprintf(w, "\nCPU %s: %s%d threads; this process may use %.4g of them\n", show.OrDash(h.CPU), cores, h.Threads,
		h.CPUQuota)
	if len(h.Features) > 0 {
		fmt.Fprintf(w, "    %s\n", strings.Join(h.Features, " "))
	}
	fmt.Fprintf(w, "memory %.1f GiB; this process may use %.1f GiB", show.GiB(h.MemoryBytes),
		show.GiB(h.MemoryLimitBytes))
	if h.AvailableBytes > 0 {
		fmt.Fprintf(w, "; %.1f GiB are free now", show.GiB(h.AvailableBytes))
	}
	fmt.Fprintln(w)
	for _, g := range r.GPUs {
		fmt.Fprintf(w, "%v, driver %s\n", g, g.Driver)
	}
	if r.NoGPU != "" {
		fmt.Fprintf(w, "no GPU: %s\n", r.NoGPU)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "device\tis\tinstructions\tthreads\tmemory\tprecisions\tauto\t")
	var reasons []error
	for _, d := range r.Devices {
		if !d.Available {
			fmt.Fprintf(t, "%s\tmissing\t\t\t\t\t\t\n", d.Name)
			reasons = append(reasons, fmt.Errorf("%s: %s", d.Name, d.Reason))
			continue
		}
		chosen := ""
		if d.Auto {
			chosen = "this, in " + d.AutoPrecision
			if d.AutoPrecision == notYetTimed {
				chosen = "this, in bf16 or f32: the first run times both"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.1f GiB\t%s\t%s\t\n", d.Name, d.Model, d.ISA, d.Threads,
			show.GiB(d.MemoryBytes), strings.Join(d.Precisions, ", "), chosen)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(reasons) > 0 {
		fmt.Fprintf(w, "\n%v\n", errors.Join(reasons...))
	}
	if err := writeKernels(w, r.Kernels); err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "NOTE %s\n", note)
	}
	return nil
}
