// Package needtest ends tests that need a part that this machine lacks: a library, a program, a privilege, a data set
// or a kind of hardware. Without the part, a test skips with the reason "needs PART: ...". If HETERO_REQUIRE names the
// part, the test fails instead.
//
// The package also skips long tests, unless an environment variable turns on their tier, and tests that -short leaves
// out.
package needtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Variable lists the required parts, separated by commas: "cpu,shm,chromium". The command selftest reads the same
// variable, for parts of the program only.
const Variable = "HETERO_REQUIRE"

// remedies maps each part to the way to get it.
var remedies = map[string]string{
	// Native libraries.
	"cpu":  "run make, or make native-test for libraries that only tests need",
	"shm":  "run make",
	"gloo": "apt-get install libgloo-dev, then make",
	"jpeg": "apt-get install libturbojpeg0-dev, then make",
	"webp": "apt-get install libwebp7",

	// Programs.
	"arm64":        "run third_party/arm64.sh and make ARCH=arm64; apt-get install qemu-user libstdc++6-arm64-cross",
	"axe":          "run scripts/dashboard_ui.sh --check",
	"bash":         "apt-get install bash",
	"chromium":     "apt-get install chromium-headless-shell",
	"datasets":     "pip install datasets Pillow, and set HETERO_TORCH to its Python",
	"compiler":     "apt-get install g++",
	"git":          "apt-get install git, and test a checkout",
	"iproute2":     "apt-get install iproute2",
	"kubectl":      "apt-get install kubernetes-client",
	"mlflow":       "pip install mlflow, and set HETERO_MLFLOW to its program",
	"mpich":        "apt-get install mpich",
	"openmpi":      "apt-get install openmpi-bin",
	"prometheus":   "apt-get install prometheus",
	"python3":      "apt-get install python3",
	"qemu":         "apt-get install qemu-user",
	"seaweedfs":    "run scripts/seaweedfs.sh, and set HETERO_SEAWEEDFS to the path that it prints",
	"shellcheck":   "apt-get install shellcheck",
	"slurm":        "apt-get install slurmctld slurmd slurm-client munge, and test as root",
	"sshd":         "apt-get install openssh-server openssh-client, with sshd in PATH, and test as root",
	"strace":       "apt-get install strace",
	"torch":        "pip install torch, and set HETERO_TORCH to its Python",
	"transformers": "pip install torch transformers, and set HETERO_TORCH to its Python",
	"tools":        "apt-get install coreutils gawk sed diffutils util-linux",

	// Privileges and abilities of the system.
	"root":       "test as root",
	"cgroups":    "test as root, with control groups that this process may create",
	"namespaces": "test as root, where unshare is permitted",
	"system":     "test on Linux with /proc, /sys, /dev/full and pseudo-terminals",
	"ptrace":     "permit ptrace",
	"files":      "raise the limit of open files: ulimit -n 4500",

	// Data and hardware.
	"goroot": "install Go with the test images of its package image",
	"data":   "set HETERO_DATA to a folder with the public data (docs/benchmarks)",
	"gavel":  "set HETERO_GAVEL to a folder with results of scripts/gavel_reference.py",
	"cpus":   "test with two CPUs or more",
	"bf16":   "test on a CPU with bf16 instructions",
	"amx":    "test on a CPU with AMX",
	"cuda":   "test on a machine with an NVIDIA GPU",
	"nccl":   "test on a machine with NVIDIA GPUs and NCCL",
}

// Required reports whether HETERO_REQUIRE names the part. A name in HETERO_REQUIRE that is not a part fails the test,
// because a misspelt requirement would require nothing.
func Required(t testing.TB, part string) bool {
	t.Helper()
	if remedies[part] == "" {
		t.Fatalf("needtest: unknown part %q, want one of %s", part, names())
	}
	required, err := parse(os.Getenv(Variable))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(required, part)
}

// parse splits a value of HETERO_REQUIRE.
func parse(text string) ([]string, error) {
	required := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range required {
		if remedies[name] == "" {
			return nil, fmt.Errorf("%s: unknown part %q, want some of %s", Variable, name, names())
		}
	}
	return required, nil
}

func names() string { return strings.Join(slices.Sorted(maps.Keys(remedies)), ", ") }

// Missing skips the test because a part is missing, or fails it if the part is required, or if the environment has a
// relative path. why is an error, or says what was looked for.
func Missing(t testing.TB, part string, why any) {
	t.Helper()
	for _, folder := range []string{"HETERO_LIB_DIR", "HETERO_DATA"} {
		if path := os.Getenv(folder); path != "" && !filepath.IsAbs(path) {
			t.Fatalf("%s: got %q, want an absolute path: a test runs in the folder of its package", folder, path)
		}
	}
	message := fmt.Sprintf("needs %s: %v (%s)", part, why, remedies[part])
	if Required(t, part) {
		t.Fatalf("%s requires this part: %s", Variable, message)
	}
	t.Skip(message)
}

// Program returns the path of a program: the first of the names that is in PATH. If there is none, the part is missing.
func Program(t testing.TB, part string, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, part, "there is no "+strings.Join(names, " or ")+" in PATH")
	return ""
}

// Programs checks that all these programs are in PATH. If one is not, the part is missing.
func Programs(t testing.TB, part string, names ...string) {
	t.Helper()
	for _, name := range names {
		Program(t, part, name)
	}
}

// Root checks that the test runs as root. why is what root is needed for.
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root", why)
	}
}

// Data returns the path of a file of the public data: below HETERO_DATA, or in the folder shared/data next to the
// checkout. If the file is not there, part data is missing.
func Data(t testing.TB, path ...string) string {
	t.Helper()
	dir := os.Getenv("HETERO_DATA")
	if dir == "" {
		root, err := ModuleRoot()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "..", "shared", "data")
	}
	file := filepath.Join(append([]string{dir}, path...)...)
	if _, err := os.Stat(file); err != nil {
		Missing(t, "data", err)
	}
	return file
}

// ModuleRoot returns the folder of go.mod above the working directory, which is the folder of the tested package.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s", start)
		}
	}
}

// A Tier is a group of long tests. Its value is the environment variable that turns them on.
type Tier string

// The tiers of make test-long.
const (
	Large   Tier = "HETERO_LARGE"   // published sizes and long comparisons
	Hostile Tier = "HETERO_HOSTILE" // long versions of the tests of docs/reliability.md
	Arm64   Tier = "HETERO_ARM64"   // programs for arm64 under QEMU
	Cluster Tier = "HETERO_CLUSTER" // a real Slurm, and sshd, between network namespaces
)

// On reports whether the tests of the tier run.
func (tier Tier) On() bool { return os.Getenv(string(tier)) != "" }

// Need skips the test unless its tier is on. why is the cost of the test, for the message.
func (tier Tier) Need(t testing.TB, why string) {
	t.Helper()
	if !tier.On() {
		t.Skip(tier.Why(why))
	}
}

// Why returns the reason of a skipped test of the tier. cost is the cost of the test.
func (tier Tier) Why(cost string) string { return fmt.Sprintf("long: %s; %s=1 runs it", cost, tier) }

// NotShort skips the test if -short is set. why is the cost of the test, for the message.
func NotShort(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: " + why)
	}
}
