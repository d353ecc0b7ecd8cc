//go:build cuda && cgo && linux

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

const probeVariable = "HETERO_CUDA_PROBE"

// TestProbe is the child process of TestDriverStates, in which the loader finds another driver. Without the variable,
// TestProbe does nothing.
func TestProbe(t *testing.T) {
	switch os.Getenv(probeVariable) {
	case "count":
		n, err := Driver{}.Count()
		fmt.Printf("PROBE %d absent=%v %v\n", n, errors.As(err, new(device.AbsentError)), err)
	case "describe":
		info, err := Driver{}.Describe(0)
		fmt.Printf("PROBE %s %v\n", info.ISA, err)
	case "open":
		dev, err := Driver{}.Open(0, device.Options{})
		if err == nil {
			err = dev.Close()
		}
		fmt.Printf("PROBE unavailable=%v failure=%v %v\n", errors.Is(err, device.ErrUnavailable),
			errors.Is(err, device.ErrDevice), err)
	}
}

// The test checks the message for every state of a driver. It also checks that counting GPUs creates no context.
func TestDriverStates(t *testing.T) {
	built := nativetest.Need(t, "cpu", "fake_driver/libcuda.so.1")
	shim := t.TempDir()
	if err := os.Symlink(filepath.Join(built, "libhetero_cuda_shim.so"), filepath.Join(shim, LibraryName)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, what, driver, visible string
		want                        string
		contexts                    bool
	}{
		{name: "none", what: "count", want: "PROBE 0 absent=true cuda: no driver"},
		{name: "none", what: "open", want: "cuda: no driver"},
		{name: "two GPUs", what: "count", driver: "gpus=2", want: "PROBE 2 absent=false <nil>"},
		{name: "no GPU", what: "count", driver: "gpus=0", want: "absent=true cuda: no GPU: the driver shows none"},
		{name: "no GPU, as cuInit tells", what: "count", driver: "init=100", want: "absent=true cuda: no GPU"},
		{name: "broken", what: "count", driver: "init=999", want: "absent=false device unavailable: cuda: the driver does not start: CUDA_ERROR_UNKNOWN: often /dev/nvidia-uvm is missing"},
		{name: "two versions", what: "count", driver: "init=803", want: "restart the machine after a driver update"},
		{name: "unheard of", what: "count", driver: "init=12345", want: "the driver does not start: CUDA error 12345"},
		{name: "old", what: "open", driver: "version=12080",
			want: "the driver supports CUDA 12.8, this program was built with CUDA 13."},
		{name: "newer", what: "count", driver: "version=14010", want: "PROBE 1 absent=false <nil>"},
		{name: "hidden", what: "count", driver: "gpus=2", visible: "-1",
			want: `absent=true cuda: CUDA_VISIBLE_DEVICES="-1" hides all GPUs`},
		{name: "more named than there are", what: "count", driver: "gpus=1", visible: "0,1,2",
			want: `names 3 GPUs, the driver shows 1: there is no GPU "1"`},
		{name: "prohibited", what: "open", driver: "mode=2",
			want: "PROBE unavailable=true failure=false device unavailable: cuda:0: the GPU's compute mode is Prohibited"},
		{name: "taken", what: "open", driver: "mode=3",
			want: "failure=true cuda:0: device failure: its compute mode, Exclusive Process", contexts: true},
		{name: "good", what: "describe", driver: "gpus=1", want: "PROBE sm_90 <nil>"},
		{name: "none", what: "describe", want: "cuda: no driver"},
		{name: "lost", what: "open", driver: "lost=46",
			want: "PROBE unavailable=false failure=true cuda:0: device failure: finding the GPU"},
		{name: "good", what: "open", driver: "gpus=1", want: "PROBE unavailable=false failure=false <nil>",
			contexts: true},
	} {
		t.Run(c.name+"/"+c.what, func(t *testing.T) {
			contexts := filepath.Join(t.TempDir(), "contexts")
			cmd := exec.Command(os.Args[0], "-test.run=^TestProbe$", "-test.v")
			cmd.Env = append(os.Environ(), probeVariable+"="+c.what, nativelib.DirVariable+"="+shim,
				"HETERO_FAKE_DRIVER="+c.driver, "HETERO_CUDA_LIBS="+built, "HETERO_FAKE_CONTEXTS="+contexts)
			if c.visible != "" {
				cmd.Env = append(cmd.Env, VisibleVariable+"="+c.visible)
			}
			if c.driver != "" {
				cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+filepath.Join(built, "fake_driver"))
			}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("got %v:\n%s\nwant %q", err, out, c.want)
			}
			if _, err := os.Stat(contexts); (err == nil) != c.contexts {
				t.Errorf("a context was made: %v, want %v", err == nil, c.contexts)
			}
		})
	}
}
