package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Experiment is the [experiment] table.
type Experiment struct {
	Name      string
	OutputDir string
	LogDir    string // "" = <OutputDir>/<Name>/logs
	Seed      uint64
}

// Keys lists the table's keys.
func (e *Experiment) Keys() []Key {
	return []Key{
		String(&e.Name, "name", "distributed_training").Operational().
			Doc("Name of the run and of its folder: letters, digits, `.`, `_` and `-`, at most 64. A run with the default name moves to `distributed_training-1`, `-2`, … when a run with other settings starts. A run with another name stays (docs/training.md)."),
		String(&e.OutputDir, "output_dir", "experiments").Operational().
			Doc("Folder that holds the folders of all runs."),
		String(&e.LogDir, "log_dir", "").Operational().
			Doc("Folder of logs and metrics. Empty: `<output_dir>/<name>/logs`."),
		Seed(&e.Seed, "seed", 42).Learnt().
			Doc("Everything random is a function of it: weights, order of samples, augmentation, dropout. Same seed, machine and binary: bit-equal losses, with one rank, and with several where shares do not follow the clock (`balance.policy = \"none\"` or `balance.fixed_shares`)."),
	}
}

// Device is the [device] table.
type Device struct {
	Kind     string // auto, cpu, cuda, reference, null
	Index    int    // -1: by the rank's number on its machine
	ShareGPU bool
	Threads  int // 0 = as many as the CPU quota allows
}

// Keys lists the table's keys.
func (d *Device) Keys() []Key {
	return each(Key.Operational, []Key{
		Choice(&d.Kind, "kind", "auto", "auto", "cpu", "cuda", "reference", "null").Meant(meantDevice).
			Doc("`auto`: the GPUs if there are any, else the CPU. `cpu`: oneDNN and vectorised kernels. `cuda`: NVIDIA GPUs. `reference`: plain Go, slow and obviously right. `null`: no memory and no maths, for tests of everything around them."),
		Int(&d.Index, "index", -1).AtLeast(-1).AtMost(1023).
			Doc("Number of the GPU that this process takes, among those that it sees (`CUDA_VISIBLE_DEVICES`), from 0. -1: a rank takes the one with its number on its machine; the only one where it sees one."),
		Bool(&d.ShareGPU, "share_gpu", false).
			Doc("Lets several ranks compute on one GPU, which divide its memory. For tests: it is refused otherwise, since such ranks are slower than one."),
		Int(&d.Threads, "threads", 0).Unit("threads").AtMost(4096).
			Doc("Threads that compute on a CPU. 0: as many as the CPU quota of the process allows, divided among the ranks of the machine, and at most OMP_NUM_THREADS for each rank."),
	})
}

// meantDevice says how this program calls a GPU that a text names as other programs do: "gpu", "cuda:1"; "" if it does not.
func meantDevice(text string) string {
	word, number, numbered := strings.Cut(strings.ToLower(text), ":")
	switch word {
	case "cuda", "gpu", "nvidia":
	default:
		return ""
	}
	if index, err := strconv.ParseUint(number, 10, 10); numbered && err == nil {
		return fmt.Sprintf(`"cuda" with device.index = %d`, index)
	}
	return `"cuda"`
}
