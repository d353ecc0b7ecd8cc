package program

import (
	"encoding/json"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// underQEMU is an environment variable for Go programs in QEMU's user mode. Go preempts goroutines by signals. QEMU can
// deliver a signal at places where the processor could not, and the program then crashes (golang.org/issue/36981).
const underQEMU = "GODEBUG=asyncpreemptoff=1"

// QEMU emulates the CPUs. qemu64 is x86-64 of 2003 with SSE3. Nehalem is the first CPU of level x86-64-v2, and Haswell
// is the first CPU with AVX2.
func TestOldProcessors(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("x86-64 only")
	}
	needtest.Hostile.Need(t, "trains on emulated CPUs")
	qemu := needtest.Program(t, "qemu", "qemu-x86_64", "qemu-x86_64-static")
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	p := buildProgram(t)
	on := func(cpu string, args ...string) ended {
		t.Helper()
		return finish(t, exec.Command(qemu, append([]string{"-cpu", cpu, "-E", underQEMU, p.path}, args...)...), 0)
	}
	train := []string{"-c", p.config, "--set", "train.steps=3", "--set", "train.eval_interval=0", "--set",
		"model.channels=[16, 32]"}
	for cpu, isa := range map[string]string{"qemu64": "", "Nehalem": "generic", "Haswell": "avx2"} {
		t.Run(cpu, func(t *testing.T) {
			listed := on(cpu, "devices", "--json")
			var got devices.Report
			if err := json.Unmarshal([]byte(listed.stdout), &got); err != nil {
				t.Fatalf("devices: %v: %+v", err, listed)
			}
			for _, d := range got.Devices {
				if d.Kind == "cpu" && (d.Available != (isa != "") || d.ISA != isa) {
					t.Errorf("got %+v, want instruction set %q", d, isa)
				}
			}
			e := on(cpu, append(train, "--set", "device.kind=auto", "--set", "experiment.output_dir="+t.TempDir())...)
			if isa != "" {
				e.check(t, exit.Done, "")
				return
			}
			e.check(t, exit.Usage,
				"this CPU lacks popcnt, ssse3, sse4_1, sse4_2, and the native libraries need the level x86-64-v2")
			if strings.Count(strings.TrimSpace(e.stderr), "\n") > 1 || strings.Contains(e.stderr, "goroutine") {
				t.Errorf("got\n%s\nwant one sentence", e.stderr)
			}
			// The program trains on the reference device.
			on(cpu, append(train, "--set", "experiment.output_dir="+t.TempDir())...).check(t, exit.Done, "")
		})
	}
}
