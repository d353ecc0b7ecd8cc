package precision_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/precision"
)

func TestTheFirstFormatIsTakenUnlessAnotherOneIsClearlyFaster(t *testing.T) {
	for _, c := range []struct {
		name  string
		times [][]float64
		want  int
	}{
		{"the first is faster", [][]float64{{1, 2}}, 0},
		{"the second is faster", [][]float64{{2, 1}}, 1},
		{"by less than the margin", [][]float64{{1, 0.92}}, 0},
		{"by more than the margin", [][]float64{{1, 0.88}}, 1},
		{"the fastest of three", [][]float64{{3, 2, 1}}, 2},
		{"one format", [][]float64{{1}}, 0},
		{"ranks differ: the mean of their ratios counts", [][]float64{{1, 0.9}, {1, 1.2}}, 0},
		{"slow ranks count as much as fast ones", [][]float64{{1, 0.5}, {100, 120}}, 1},
	} {
		if got := precision.Fastest(c.times); got != c.want {
			t.Errorf("%s: got format %d, want %d", c.name, got, c.want)
		}
	}
}

func TestFormatsAreTimedOnTheCPU(t *testing.T) {
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
	if errors.Is(err, device.ErrUnavailable) {
		needtest.Missing(t, "cpu", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	seconds, err := precision.Time(context.Background(), dev, []tensor.DType{tensor.F32, tensor.BF16})
	if err != nil {
		t.Fatal(err)
	}
	if len(seconds) != 2 || !(seconds[0] > 0 && seconds[1] > 0) || math.IsInf(seconds[0]+seconds[1], 0) {
		t.Errorf("got %v, want two times", seconds)
	}
	if allocated, _ := dev.Memory(); allocated != 0 {
		t.Errorf("%d bytes of the device are still allocated", allocated)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := precision.Time(ctx, dev, []tensor.DType{tensor.F32}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestADeviceThatComputesNothingIsNotTimed(t *testing.T) {
	dev, err := null.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := precision.Time(context.Background(), dev, []tensor.DType{tensor.F32}); err == nil {
		t.Error("got no error")
	}
}

func TestChoiceComesBack(t *testing.T) {
	cache := precision.Open(filepath.Join(t.TempDir(), "not", "yet"))
	if c, err := cache.Load("key"); c.Type != "" || err != nil {
		t.Fatalf("unknown key: got %v, %v, want nothing", c, err)
	}
	if err := cache.Store("key",
		precision.Choice{Type: "bf16", Seconds: map[string]float64{"bf16": 1, "f32": 2}}); err != nil {
		t.Fatal(err)
	}
	if c, err := cache.Load("key"); err != nil || c.Type != "bf16" || c.Seconds["f32"] != 2 {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestDamagedChoiceIsNamedAndReplaced(t *testing.T) {
	dir := t.TempDir()
	cache := precision.Open(dir)
	store := func() string {
		t.Helper()
		if err := cache.Store("key", precision.Choice{Type: "f32"}); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("got files %v, %v, want one", files, err)
		}
		return files[0]
	}
	path := store()
	for _, damage := range []struct{ text, want string }{
		{"{", "unexpected end"},
		{`{"version": 2, "key": "key", "type": "f32"}`, "version 2"},
		{`{"version": 1, "key": "another", "type": "f32"}`, "another"},
		{`{"version": 1, "key": "key"}`, "no type"},
		{strings.Repeat(" ", 1<<17), "131072 bytes"},
	} {
		if err := os.WriteFile(path, []byte(damage.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := cache.Load("key"); err == nil || !strings.Contains(err.Error(), damage.want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%.20q: got %v, want %q and the file's name", damage.text, err, damage.want)
		}
		store()
		if c, err := cache.Load("key"); c.Type != "f32" || err != nil {
			t.Errorf("stored again: got %v, %v", c, err)
		}
	}
}
