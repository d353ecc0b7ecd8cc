package hardware

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// Identity describes the hardware of one rank.
type Identity struct {
	// Fingerprint is a hash of the properties on which a profile depends: device and model, CPU and the fraction of it
	// that the rank may use, memory, and UUID of the GPU. Measured values are not part of it.
	Fingerprint string
	// Type is a short key of the type of device and of the resources that the rank may use. It is equal for all equal
	// devices. Examples are "cpu AMD EPYC avx512_bf16 0.8 CPUs 1 thread" and "cuda NVIDIA H100 80GB HBM3". Except for
	// spaces, it contains no character with a special meaning in file names.
	Type string
}

// memoryUnit is the unit to which memory sizes are rounded, because kernel versions reserve slightly different
// amounts.
const memoryUnit = 256 << 20

// namelessArm is the model name that the CPU device reports on arm64, because /proc/cpuinfo contains no name there.
// Identify replaces it by the model in the host description, so that different arm64 CPUs have different types.
const namelessArm = "aarch64 CPU"

// Identify returns the identity of a rank's device. gpu is nil if the rank computes on the CPU.
func Identify(dev device.Info, host system.Host, gpu *GPU) Identity {
	cpu := host.CPU
	if dev.Kind == "cpu" && dev.Model == namelessArm && cpu.Model != "" {
		dev.Model = cpu.Model
	}
	facts := []string{dev.Kind, dev.Model, dev.ISA, strconv.Itoa(dev.Threads), cpu.Model, strconv.Itoa(cpu.Usable),
		cpus(cpu.Quota),
		strconv.FormatInt((host.Memory.Limit+memoryUnit/2)/memoryUnit, 10)}
	var kind strings.Builder
	fmt.Fprintf(&kind, "%s %s", dev.Kind, squeeze(dev.Model))
	if gpu != nil {
		facts = append(facts, gpu.UUID, gpu.Name, strconv.FormatInt(gpu.MemoryBytes/memoryUnit, 10),
			strconv.FormatBool(gpu.MIG))
	} else {
		threads := "threads"
		if dev.Threads == 1 {
			threads = "thread"
		}
		fmt.Fprintf(&kind, " %s %s CPUs %d %s", dev.ISA, cpus(min(cpu.Quota, float64(max(dev.Threads, 1)))),
			dev.Threads, threads)
	}
	return Identity{Fingerprint: Fingerprint(facts...), Type: squeeze(kind.String())}
}

// Fingerprint returns a hash of facts. The hash depends on their order.
func Fingerprint(facts ...string) string {
	h := sha256.New()
	for _, f := range facts {
		fmt.Fprintf(h, "%d:%s", len(f), f) // the lengths ensure that different lists give different bytes
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// cpus formats a quota with two decimals: 0.8, 16.
func cpus(quota float64) string {
	return strconv.FormatFloat(math.Round(100*quota)/100, 'f', -1, 64)
}

// squeeze keeps letters, digits and a few signs of a name. All other characters become single spaces.
func squeeze(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_+@", r) {
			return r
		}
		return ' '
	}, name)
	return strings.Join(strings.Fields(clean), " ")
}
