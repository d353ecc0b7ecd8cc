package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Experiment contains the keys of table [experiment].
type Experiment struct {
	Name      string
	OutputDir string
	LogDir    string // "": <OutputDir>/<Name>/logs
	Seed      uint64
}

// Keys implements [Options].
func (e *Experiment) Keys() []Key {
	return []Key{
		String(&e.Name, "name", "distributed_training").Operational().
			Doc("Name of the run and of its folder: letters, digits, `.`, `_` and `-`, at most 64 characters. If a run of this name exists with different settings, the folder of the old run is renamed `distributed_training-1`, `-2`, … if the name is the default; with any other name, the new run is refused. A run with the default name that starts while another one trains gets the next free name (docs/training.md)."),
		String(&e.OutputDir, "output_dir", "experiments").Path().Operational().
			Doc("Folder that contains all runs."),
		String(&e.LogDir, "log_dir", "").Path().Operational().
			Doc("Folder of logs and metrics. Empty: `<output_dir>/<name>/logs`."),
		Seed(&e.Seed, "seed", 42).Learnt().
			Doc("Seed of all random choices: weights, order of samples, augmentation, dropout. With one rank, the same seed, machine and binary give bit-equal losses. With several ranks, losses are bit-equal if shares do not depend on measured times (`balance.policy = \"none\"` or `balance.fixed_shares`)."),
	}
}

// Device contains the keys of table [device].
type Device struct {
	Kind     string // "auto", "cpu", "cuda", "reference" or "null"
	Index    int    // index of the GPU; -1: number of this rank on its machine
	ShareGPU bool
	Threads  int // 0: CPU quota
}

// Keys implements [Options].
func (d *Device) Keys() []Key {
	return each(Key.Operational, []Key{
		Choice(&d.Kind, "kind", "auto", "auto", "cpu", "cuda", "reference", "null").Meant(meantDevice).
			Doc("`auto`: GPUs if there are any, else the CPU. `cpu`: oneDNN and vectorised kernels. `cuda`: NVIDIA GPUs. `reference`: plain Go, slow. `null`: no memory and no arithmetic, for tests of the other parts of the program."),
		Int(&d.Index, "index", -1).AtLeast(-1).AtMost(1023).Only(Is("device.kind", "auto", "cuda")).
			Doc("Number of the GPU of this process, from 0, among the visible GPUs (`CUDA_VISIBLE_DEVICES`). -1: the GPU whose number equals the local rank, or the only visible GPU."),
		Bool(&d.ShareGPU, "share_gpu", false).Only(Is("device.kind", "auto", "cuda")).
			Doc("Allows several ranks on one GPU, for tests; the ranks divide its memory. Without this key, a run with several ranks on one GPU is refused, because it is slower than a run with one rank."),
		Int(&d.Threads, "threads", 0).Unit("threads").AtMost(4096).Only(
			Any(Is("device.kind", "auto", "cpu"), IsNot("parallel.cpu_ranks", 0))).
			Doc("Number of CPU threads for computation. 0: the CPU quota of the process, divided among the ranks of the machine; OMP_NUM_THREADS limits the threads of each rank."),
	})
}

// meantDevice returns this program's name for a GPU, if text is a name such as "gpu" or "cuda:1" of other programs. It
// returns "" for any other text.
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
