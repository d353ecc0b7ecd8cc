package cpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

const refusedVariable = "HETERO_REFUSE_THREADS" // of refuse_threads.c

// A thread of the team that the system refuses is an error of the operation that needs it, not the end of the process.
func TestAThreadThatIsRefusedIsAnError(t *testing.T) {
	dev := open(t, device.Options{Threads: 3})
	defer dev.Close()
	measure := func() error {
		_, err := dev.(device.PeakMeasurer).MeasurePeak(device.PeakF32, time.Millisecond)
		return err
	}
	if os.Getenv(refusedVariable) != "" { // the process below
		if err := measure(); err == nil || !strings.Contains(err.Error(), "got a team of 2 threads, want 3: Resource temporarily unavailable") {
			t.Errorf("got %v, want an error that names the threads", err)
		}
		if err := measure(); err == nil { // the failure leaves no half of a team behind
			t.Error("a second attempt succeeded")
		}
		return
	}
	if err := measure(); err != nil {
		t.Fatal(err)
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: ", err)
	}
	if os.Getenv("LD_PRELOAD") != "" {
		t.Skip("another library is preloaded: ", os.Getenv("LD_PRELOAD"))
	}
	refuse := filepath.Join(t.TempDir(), "refuse_threads.so")
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-o", refuse, "../../nativelib/testdata/refuse_threads.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAThreadThatIsRefusedIsAnError$")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+refuse, refusedVariable+"=2")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
