package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// onGPU gives a command a machine with GPUs: the sources of the CUDA device, compiled for the host, in place of its library, and a driver that shows as
// many. A test that needs neither convolutions nor a driver of its own is the same with a real GPU.
func onGPU(t *testing.T, gpus int, cmd *exec.Cmd, set ...string) *exec.Cmd {
	t.Helper()
	built := os.Getenv("HETERO_LIB_DIR")
	if built == "" {
		built = filepath.Join("..", "..", "build", "lib")
	}
	built, err := filepath.Abs(built)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(built, "*.so*"))
	if err != nil {
		t.Fatal(err)
	}
	dir, shim := t.TempDir(), ""
	for _, file := range files {
		name := filepath.Base(file)
		switch name {
		case "libhetero_cuda.so":
			continue
		case "libhetero_cuda_shim.so":
			name, shim = "libhetero_cuda.so", file
		}
		if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if shim == "" {
		if strings.Contains(os.Getenv("HETERO_REQUIRE"), "cpu") {
			t.Fatalf("no libhetero_cuda_shim.so in %s", built)
		}
		t.Skipf("no libhetero_cuda_shim.so in %s: run make native-test first", built)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "HETERO_LIB_DIR="+dir, fmt.Sprintf("HETERO_SHIM_GPUS=%d", gpus),
		"LD_LIBRARY_PATH="+filepath.Join(built, "fake_driver"), fmt.Sprintf("HETERO_FAKE_DRIVER=gpus=%d", gpus))
	cmd.Env = append(cmd.Env, set...)
	return cmd
}

// TestAutoGoesOnWithoutGPU: the reason is told once, and the CPU trains; who asks for a GPU gets the reason as an error.
func TestAutoGoesOnWithoutGPU(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	for _, c := range []struct {
		name  string
		gpus  int
		env   string
		want  string
		ranks []string
	}{
		{"no driver", 1, "HETERO_SHIM_DRIVER=0", "cuda: no driver", []string{"1", "2"}},
		{"no GPU", 0, "", "cuda: no GPU: the driver shows none", []string{"1"}},
		{"hidden", 2, "CUDA_VISIBLE_DEVICES=-1", "hides all GPUs", []string{"1"}},
		{"one that is not there", 1, "CUDA_VISIBLE_DEVICES=0,7", "names 2 GPUs, the driver shows 1", []string{"1"}},
		{"too old", 1, "HETERO_SHIM_ARCH=61", "has compute capability 6.1, want at least 7.5", []string{"2"}},
	} {
		set := []string{c.env}
		if c.name == "no driver" {
			set = append(set, "LD_LIBRARY_PATH=")
		}
		for _, ranks := range c.ranks {
			output := filepath.Join(dir, c.name+ranks)
			auto := finish(t, onGPU(t, c.gpus, p.command(output, "device.kind=auto", "train.steps=2", "parallel.ranks="+ranks), set...), 0)
			auto.check(t, exitDone, c.want)
			if n := strings.Count(auto.stderr, c.want); n != 1 {
				t.Errorf("%s, %s ranks: the reason was told %d times, want once:\n%s", c.name, ranks, n, auto.stderr)
			}
			if !strings.Contains(auto.stdout, "device cpu:0") {
				t.Errorf("%s: the CPU did not train:\n%s", c.name, auto.stdout)
			}
		}
		finish(t, onGPU(t, c.gpus, p.command(filepath.Join(dir, "asked"), "device.kind=cuda", "train.steps=2"), set...), 0).check(t, exitUsage, c.want)
	}
}

// TestRanksAreNotPutOnOneGPU unless that is allowed: found out when they meet, or before where there are fewer GPUs than ranks.
func TestRanksAreNotPutOnOneGPU(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	for _, c := range []struct {
		gpus int
		set  string
		env  string
		want string
	}{
		{1, "parallel.ranks=2", "", "would compute on one GPU, GPU-5a5a5a5a"},
		{2, "device.index=1", "", "ranks 0 (process"},
		{2, "parallel.ranks=3", "", "rank 2 of this machine has no device cuda of its own"},
		{2, "device.index=2", "", "device.index: got 2, want one of the 2 devices cuda"},
		{1, "parallel.ranks=2", "CUDA_VISIBLE_DEVICES=MIG-1,MIG-1", "would compute on one GPU, MIG-5a5a5a5a"},
	} {
		set := []string{"device.kind=cuda", "parallel.ranks=2", c.set, "data.batch_size=24", "train.steps=2"}
		finish(t, onGPU(t, c.gpus, p.command(filepath.Join(dir, "run"), set...), c.env), 0).check(t, exitUsage, c.want)
	}
}
