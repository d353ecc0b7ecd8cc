package devicetest_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// faultVariable contains the fault of the device in a child process.
const faultVariable = "HETERO_DEVICETEST_FAULT"

// plain lists the parts of the suite without images. A blocked device runs these parts as the reference device does,
// and package reference already tests them.
var plain = []string{"values/linear", "values/elementwise", "values/move", "values/loss", "values/transformer",
	"values/optim"}

// inBlocksOnly is a conformance.T that omits the plain parts.
type inBlocksOnly struct{ conformance.T }

func (t inBlocksOnly) Run(name string, f func(conformance.T)) bool {
	_, parent, _ := strings.Cut(t.Name(), "/")
	return slices.Contains(plain, parent+"/"+name) || t.T.Run(name, func(sub conformance.T) { f(inBlocksOnly{sub}) })
}

func runBlocked(t *testing.T, fault string) {
	open := func(t conformance.TB, opts device.Options) device.Device {
		t.Helper()
		d := &blocked{Device: reference.New(), fault: fault, threads: opts.Threads}
		spare, err := d.Device.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		d.spare = spare
		return d
	}
	suite := conformance.Go(t)
	if fault == "" {
		suite = inBlocksOnly{suite}
	} else {
		devicetest.LosePatience()
	}
	devicetest.Run(suite, open, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}, Threads: true})
}

// TestSuite requires that a device with a padded private layout passes the suite. In a child process of
// TestSuiteNoticesFaults, the device has a fault.
func TestSuite(t *testing.T) { runBlocked(t, os.Getenv(faultVariable)) }

// TestSuiteNoticesFaults runs the suite on devices with faults, each in its own process. The suite must fail in the
// part that checks for the fault.
func TestSuiteNoticesFaults(t *testing.T) {
	if os.Getenv(faultVariable) != "" {
		t.Skip("a child process")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			pattern := "^TestSuite$/^" + strings.ReplaceAll(f.noticedBy, "/", "$/^") + "$/" + f.oneCase
			child := exec.CommandContext(t.Context(), program, "-test.run", pattern)
			child.Env = append(os.Environ(), faultVariable+"="+f.name)
			out, err := child.CombinedOutput()
			if err == nil {
				t.Fatalf("nothing noticed in %s", f.noticedBy)
			}
			if !strings.Contains(string(out), "--- FAIL: TestSuite/"+f.noticedBy) ||
				strings.Contains(string(out), "panic:") {
				t.Errorf("got %v, want a failure in %s:\n%s", err, f.noticedBy, out)
			}
		})
	}
}
