package program

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// builtForArm64 builds the program for arm64 once. It has the same version stamps as builtProgram, because ranks
// compare their versions.
var builtForArm64 = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "built", "hetero-train-arm64")
	cmd := exec.Command("go", "build", "-ldflags=-extldflags=-Wl,-z,lazy", "-o", path, "..")
	cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=1", "CC=aarch64-linux-gnu-gcc")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// onArm64 returns a command that runs the program for arm64 under QEMU, with the libraries of `make ARCH=arm64`. model
// is the CPU model of QEMU.
func onArm64(t *testing.T, model string, args ...string) *exec.Cmd {
	t.Helper()
	qemu := needtest.Program(t, "arm64", "qemu-aarch64", "qemu-aarch64-static")
	root, err := needtest.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(root, "build", "arm64")
	for _, file := range []string{"lib/libhetero_cpu.so", "lib/libhetero_gloo.so"} {
		if _, err := os.Stat(filepath.Join(build, file)); err != nil {
			needtest.Missing(t, "arm64", err)
		}
	}
	path, err := builtForArm64()
	if err != nil {
		t.Fatal(err)
	}
	fetched := filepath.Join(root, "third_party", ".arm64")
	libraries := strings.Join([]string{fetched + "/usr/lib", fetched + "/usr/lib/aarch64-linux-gnu",
		fetched + "/lib/aarch64-linux-gnu"}, ":")
	cmd := exec.Command(qemu,
		append([]string{"-cpu", model, "-L", "/usr/aarch64-linux-gnu", "-E", "LD_LIBRARY_PATH=" + libraries,
			"-E", "HETERO_LIB_DIR=" + filepath.Join(build, "lib"), "-E", underQEMU, path}, args...)...)
	return cmd
}

// Two ranks on different processors train ten steps with unequal shares. The program compares the bits of their states
// at the start and at the end, and fails if they differ. The losses must equal those of one rank on this machine, up to
// the rounding of sums in another order.
func TestAnX86AndAnArm64RankTrainTogether(t *testing.T) {
	needtest.Arm64.Need(t, "a rank under QEMU")
	const steps, tolerance = 10, 1e-5
	p, dir := buildRanks(t), t.TempDir()
	set := []string{"device.kind=cpu", "model.channels=[16, 32]", "data.image_size=16", "train.steps=10",
		"train.precision=f32"}
	alone := filepath.Join(dir, "alone")
	finish(t, p.command(alone, set...), 0).check(t, exit.Done, "")
	want := lossesOf(t, alone, 1)
	for _, model := range []string{"neoverse-n1", "max"} {
		t.Run(model, func(t *testing.T) {
			port, together := porttest.Free(t), filepath.Join(dir, model)
			both := append(set, "balance.fixed_shares=[5, 3]", "parallel.shared_memory=off")
			other := asRank(onArm64(t, model, p.command(together, both...).Args[1:]...), 1, 2, port)
			output, err := os.Create(filepath.Join(dir, model+".log"))
			if err != nil {
				t.Fatal(err)
			}
			defer output.Close()
			other.Stdout, other.Stderr = output, output
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			lead := finish(t, asRank(p.command(together, both...), 0, 2, port), 0)
			if code := exitOf(t, other.Wait()); code != exit.Done {
				text, _ := os.ReadFile(output.Name())
				t.Errorf("rank 1: got exit code %d\n%s", code, text)
			}
			lead.check(t, exit.Done, "")
			got := lossesOf(t, together, 2)
			if len(got) != steps || len(want) != steps {
				t.Fatalf("got %d losses, one rank has %d, want %d", len(got), len(want), steps)
			}
			for i := range got {
				t.Logf("step %d: loss %.7g, one rank has %.7g", i+1, got[i], want[i])
				if !(math.Abs(got[i]-want[i]) <= tolerance*want[i]) {
					t.Errorf("step %d: got loss %.7g, one rank has %.7g", i+1, got[i], want[i])
				}
			}
		})
	}
}
