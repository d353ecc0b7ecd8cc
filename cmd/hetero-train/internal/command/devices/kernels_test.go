package devices

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestChosenKernelsAreListed(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if err := os.MkdirAll(choicesFolder(), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cpu_A.tsv":       choicesHeader + "\nlinear 1\ttiles\ttiles 1.0 us, onednn 2.0 us\nlinear 2\tonednn\ttiles 2.0 us, onednn 1.0 us\nattention\ttiles\ttiles 1.0 us, rows 2.0 us\ndamaged\n",
		"GPU_B.tsv":       choicesHeader + "\ncuBLASLt 130100 product\ta2 tile0\t12.5\n",
		"cpu_C.tsv":       "hetero-train choices 0\nlinear\ttiles\t1\n",
		"cpu_A.tsv.7.tmp": "unfinished",
	} {
		if err := os.WriteFile(filepath.Join(choicesFolder(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := chosenKernels()
	if err != nil || len(list) != 4 {
		t.Fatalf("got %+v, %v, want four choices", list, err)
	}
	if want := (kernelChoice{"cpu_A", "linear 2", "onednn", "tiles 2.0 us, onednn 1.0 us"}); list[2] != want {
		t.Errorf("got %+v, want %+v", list[2], want)
	}
	var text strings.Builder
	if err := writeKernels(&text, list); err != nil {
		t.Fatal(err)
	}
	if want := "\nkernels chosen by timing, in " + choicesFolder() +
		":\n    GPU_B: 1\n    cpu_A: 2 tiles, 1 onednn\n"; text.String() != want {
		t.Errorf("got %q, want %q", text.String(), want)
	}
}

func TestWithoutChoicesNothingIsListed(t *testing.T) {
	for _, c := range []struct{ cache, home string }{{t.TempDir(), ""}, {"", ""}} {
		t.Setenv("XDG_CACHE_HOME", c.cache)
		t.Setenv("HOME", c.home)
		if list, err := chosenKernels(); err != nil || len(list) != 0 {
			t.Errorf("cache %q: got %v, %v, want nothing", c.cache, list, err)
		}
	}
}

// The program must read the file that the library writes.
func TestChoicesOfTheCPUDeviceAreListed(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	t.Setenv("HETERO_CPU_KERNELS", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if dev.Info().ISA != "avx512_bf16" {
		needtest.Missing(t, "bf16", dev.Info().ISA+": each op has one kernel")
	}
	b := tensor.BF16
	k, err := dev.Compile(device.Linear{}, []device.TensorSpec{device.Spec(b, 256, 256),
		device.Spec(b, 256, 256).With(device.Any)}, []device.TensorSpec{device.Spec(b, 256, 256)})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := chosenKernels()
	if err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Device, "cpu_") ||
		!strings.Contains(list[0].Op, ": linear bf16(256, 256)") ||
		(list[0].Kernel != "tiles" && list[0].Kernel != "onednn") {
		t.Errorf("got %+v, %v, want the choice of one linear layer", list, err)
	}
}
