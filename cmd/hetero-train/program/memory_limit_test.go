//go:build linux

package program

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/plan"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cgroup"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// The program runs under RLIMIT_DATA and RLIMIT_AS. plan must report the largest batch that fits. Training must refuse
// a larger batch with a similar figure before it allocates memory, and must train with a batch that fits. On the
// reference device, figures vary, because its memory is on Go's heap.
func TestALimitOfTheProcessLimitsBatches(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	testLimitOfTheProcess(t, p, "reference", "-d", 512<<10, "RLIMIT_DATA", "GOGC=100")
}

func TestALimitOfTheProcessLimitsBatchesOfACPU(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	p := buildProgram(t)
	testLimitOfTheProcess(t, p, "cpu", "-d", 512<<10, "RLIMIT_DATA", "GOGC=400", "GOMEMLIMIT=64GiB")
	testLimitOfTheProcess(t, p, "cpu", "-v", 2200<<10, "RLIMIT_AS", "GOGC=off")
	// This limit is too low for the threads and libraries of the program.
	out, err := exec.Command("/bin/sh", "-c", `ulimit -d 180000 && exec "$@"`, "sh", p.path, "plan", "-c", p.config,
		"--set", "device.kind=cpu", "--set", "data.batch_size=64").CombinedOutput()
	if code := exitOf(t, err); code != exit.Device ||
		!regexp.MustCompile(`threads, heaps and native libraries need .* \(ulimit -d \d+\)`).Match(out) {
		t.Errorf("a limit that is too small for any model: got exit code %d and %s", code, out)
	}
}

// With any limit of addresses, the program works, or refuses with the limit and a larger value. oneDNN and Go's runtime
// would crash, because they do not check whether they get memory.
func TestNoLimitOfAddressesCrashesTheProgram(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	p := buildProgram(t)
	named := regexp.MustCompile(`RLIMIT_(DATA|AS).*ulimit -[dv] (\d+)`)
	for _, limit := range []string{"-d 45000", "-d 100000", "-d 160000", "-d 230000", "-d 300000", "-v 600000",
		"-v 1000000", "-v 1250000", "-v 1480000", "-v 1700000"} {
		for _, command := range []string{"plan", "train"} {
			out, err := exec.Command("/bin/sh", "-c", `ulimit -c 0 && ulimit `+limit+` && exec "$@"`, "sh", p.path,
				command, "-c", p.config, "--set", "device.kind=cpu", "--set", "data.image_size=32", "--set",
				"data.batch_size=64", "--set", "data.num_samples=64", "--set", "train.steps=1", "--set", "profile.at_start=off",
				"--set", "model.channels=[32, 64, 128]", "--set", "experiment.output_dir="+t.TempDir()).CombinedOutput()
			code := exitOf(t, err)
			found := named.FindSubmatch(out)
			switch {
			case code == exit.Done:
			case code != exit.Device || found == nil || bytes.Contains(out, []byte("goroutine ")):
				t.Errorf("ulimit %s: %s: got exit code %d and %s", limit, command, code, out)
			default:
				have, _ := strconv.Atoi(limit[3:])
				if want, _ := strconv.Atoi(string(found[2])); want <= have {
					t.Errorf("ulimit %s: %s: the error names %d KiB, want more", limit, command, want)
				}
			}
		}
	}
}

// Two ranks compile kernels for several shares, whose addresses are not in their accounts. Each limit must end in
// training or in a refusal with a larger limit, and not in the end of Go's runtime when a checkpoint is copied.
func TestNoLimitOfAddressesCrashesSeveralRanks(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	nativetest.Need(t, "shm", "libhetero_shm.so")
	p := buildProgram(t)
	named := regexp.MustCompile(`ulimit -d (\d+)`)
	for _, kib := range []int{700000, 850000} {
		out, err := exec.Command("/bin/sh", "-c", `ulimit -c 0 && ulimit -d `+strconv.Itoa(kib)+` && exec "$@"`, "sh",
			p.path, "train", "-c", "../../../configs/resnet50.toml", "--nproc-per-node", "2", "--set",
			"device.kind=cpu", "--set", "device.threads=1", "--set", "data.dataset=synthetic_image", "--set",
			"data.batch_size=8", "--set", "data.num_samples=32", "--set", "train.epochs=0", "--set", "train.steps=1",
			"--set", "profile.at_start=off", "--set", "experiment.output_dir="+t.TempDir()).CombinedOutput()
		code := exitOf(t, err)
		found := named.FindSubmatch(out)
		switch {
		case code == exit.Done:
		case code != exit.Device || found == nil || !bytes.Contains(out, []byte("RLIMIT_DATA")):
			t.Errorf("ulimit -d %d: got exit code %d and %s", kib, code, out)
		default:
			if least, _ := strconv.Atoi(string(found[1])); least <= kib {
				t.Errorf("ulimit -d %d: the error names %d KiB, want more", kib, least)
			}
		}
	}
}

// testLimitOfTheProcess checks the figures of plan under a limit. environment contains settings of Go's runtime, with
// which the figures must also be correct.
func testLimitOfTheProcess(t *testing.T, p program, device, flag string, kib int64, source string,
	environment ...string) {
	limited := func(args ...string) *exec.Cmd {
		args = append([]string{"-c", `ulimit ` + flag + ` ` + strconv.FormatInt(kib, 10) + ` && exec "$@"`, "sh",
			p.path}, args...)
		cmd := exec.Command("/bin/sh", args...)
		cmd.Env = append(os.Environ(), environment...)
		return cmd
	}
	set := func(batch, output string) []string {
		return []string{"-c", p.config, "--set", "device.kind=" + device, "--set", "data.image_size=32", "--set", "model.channels=[3]", "--set",
			"data.batch_size=" + batch, "--set", "data.num_samples=" + batch, "--set", "train.steps=1", "--set", "profile.at_start=off", "--set",
			"experiment.output_dir=" + output}
	}
	out, err := limited(append([]string{"plan", "--json", "--samples", "1"}, set("8", t.TempDir())...)...).Output()
	var report plan.Report
	if parseErr := json.Unmarshal(out, &report); err != nil || parseErr != nil {
		t.Fatalf("plan: %v, %v", err, parseErr)
	}
	if report.Limit.Source != source || report.LargestFit < 10 || report.Limit.Bytes > kib<<10 {
		t.Fatalf("plan: got limit %+v and a largest micro-batch of %d", report.Limit, report.LargestFit)
	}
	text, err := limited(append([]string{"train"}, set("20000", t.TempDir())...)...).CombinedOutput()
	refusal := regexp.MustCompile(`a micro-batch of 20000 samples needs \S+ GiB of memory, but this process may use only ` +
		`\S+ [MG]iB \(` + source + `\): activations .* program .*: at most (\d+) samples fit; raise the limit to at least ` +
		`\S+ GiB \(ulimit ` + flag + ` \d+\), or remove it \(ulimit ` + flag + ` unlimited\); lower data.batch_size`)
	found := refusal.FindSubmatch(text)
	if code := exitOf(t, err); code != exit.Device || found == nil {
		t.Fatalf("20000 samples: got exit code %d and %s", code, text)
	}
	fit, _ := strconv.Atoi(string(found[1]))
	if off := float64(fit)/float64(report.LargestFit) - 1; off < -0.15 || off > 0.3 {
		t.Errorf("training says that %d samples fit, the plan %d", fit, report.LargestFit)
	}
	promised := []int{report.LargestFit, fit}
	if device == "reference" { // Go's collector decides when its heap grows
		promised = []int{report.LargestFit * 3 / 4}
	}
	for _, n := range promised {
		text, err = limited(append([]string{"train"}, set(strconv.Itoa(n), t.TempDir())...)...).CombinedOutput()
		if code := exitOf(t, err); code != 0 || !strings.Contains(string(text), "memory planned: ") {
			t.Errorf("ulimit %s: %d samples: got exit code %d and %s", flag, n, code, text)
		}
	}
	if a := report.Table[0].Account; memory.Sum(a.Host) < 5<<20 || !a.Unified {
		t.Errorf("got account %+v", a)
	}
}

// groupOf creates a control group with a memory limit in bytes. It returns the start of a command line that runs a
// program in this group.
func groupOf(t *testing.T, limit int64) []string {
	t.Helper()
	root := memory.System()
	folders, v2 := cgroup.Read(root).Folders("memory")
	if len(folders) == 0 {
		needtest.Missing(t, "system", "there are no control groups for memory")
	}
	file := "memory.limit_in_bytes"
	if v2 {
		file = "memory.max"
	}
	// The new group is below the topmost group, because a group of version 2 that contains processes cannot have child
	// groups.
	folder, err := os.MkdirTemp("/"+folders[len(folders)-1], "hetero-train-test")
	if err != nil {
		needtest.Missing(t, "system", "a test may not make a control group: "+err.Error())
	}
	// The removal fails if a process is left, but then the test has already failed.
	t.Cleanup(func() { os.Remove(folder) })
	if err := os.WriteFile(folder+"/"+file, []byte(strconv.FormatInt(limit, 10)), 0o644); err != nil {
		needtest.Missing(t, "system", "a test may not limit a control group: "+err.Error())
	}
	return []string{"/bin/sh", "-c", "echo $$ > " + folder + "/cgroup.procs && exec \"$@\"", "sh"}
}

// Ranks must divide the memory of a control group among themselves, whether the program or a launcher started them.
func TestRanksDivideAControlGroup(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	nativetest.Need(t, "shm", "libhetero_shm.so")
	p := buildProgram(t)
	const limit = 640 << 20
	in := groupOf(t, limit)
	command := func(name string, args ...string) *exec.Cmd {
		line := append(append(append([]string{}, in...), p.path, name, "-c", p.config), args...)
		return exec.Command(line[0], line[1:]...)
	}
	run := func(env []string, args ...string) ([]byte, error) {
		c := command("train", args...)
		c.Env = append(os.Environ(), env...)
		return c.CombinedOutput()
	}
	settings := func(output string, more ...string) []string {
		return append([]string{"--set", "device.kind=cpu", "--set", "device.threads=1", "--set", "data.image_size=32",
			"--set", "model.channels=[3]", "--set", "data.batch_size=1000", "--set", "data.num_samples=1000", "--set",
			"train.steps=1", "--set", "profile.at_start=off", "--set", "experiment.output_dir=" + output}, more...)
	}
	planned := regexp.MustCompile(`memory planned on this rank: \S+ MiB of (\S+) MiB \(memory\.\S+ of`)
	limitOf := func(text []byte) float64 {
		found := planned.FindSubmatch(text)
		if found == nil {
			t.Fatalf("got no limit in %s", text)
		}
		mib, _ := strconv.ParseFloat(string(found[1]), 64)
		return mib
	}
	t.Run("the largest batch of a plan", func(t *testing.T) {
		out, err := command("plan", settings(t.TempDir(), "--json", "--samples", "1")...).Output()
		var report plan.Report
		if parseErr := json.Unmarshal(out, &report); err != nil || parseErr != nil || report.LargestFit < 1000 ||
			!strings.HasPrefix(report.Limit.Source, "memory.") {
			t.Fatalf("plan: %v, %v; got limit %+v and a largest micro-batch of %d", err, parseErr, report.Limit,
				report.LargestFit)
		}
		largest := strconv.Itoa(report.LargestFit)
		text, err := run(nil, settings(t.TempDir(), "--set", "data.batch_size="+largest, "--set",
			"data.num_samples="+largest)...)
		if err != nil {
			t.Errorf("%s samples: got %v, %s", largest, err, text)
		}
	})
	t.Run("supervised", func(t *testing.T) {
		text, err := run(nil, settings(t.TempDir(), "--nproc-per-node", "2")...)
		if got := limitOf(text); err != nil || got > limit>>21 || got < limit>>22 {
			t.Errorf("got %v, and %v MiB for a rank", err, got)
		}
	})
	t.Run("launcher", func(t *testing.T) {
		output, port := t.TempDir(), porttest.Free(t)
		texts, errs := make([][]byte, 2), make([]error, 2)
		var ranks sync.WaitGroup
		for rank := range 2 {
			ranks.Go(func() {
				number := strconv.Itoa(rank)
				texts[rank], errs[rank] = run([]string{"RANK=" + number, "LOCAL_RANK=" + number, "WORLD_SIZE=2",
					"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port),
					"HETERO_TOKEN=0123456789abcdef0123"}, settings(output)...)
			})
		}
		ranks.Wait()
		if got := limitOf(texts[0]); errs[0] != nil || errs[1] != nil || got > limit>>21 || got < limit>>22 {
			t.Errorf("got %v, and %v MiB for a rank", errs, got)
		}
	})
	t.Run("fixed shares", func(t *testing.T) {
		text, err := run(nil, settings(t.TempDir(), "--nproc-per-node", "2", "--set",
			"balance.fixed_shares=[990, 10]")...)
		if got := limitOf(text); err != nil || got < limit>>21 {
			t.Errorf("got %v, and %v MiB for the rank with the large share", err, got)
		}
	})
}
