package config

import (
	"fmt"
	"strconv"
	"strings"
)

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
