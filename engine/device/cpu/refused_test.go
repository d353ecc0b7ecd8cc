package cpu

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

const refusedVariable = "HETERO_REFUSE_THREADS" // environment variable that refuse_threads.c reads

// If the system refuses a thread of the team, the operation that needs the thread must return an error. The process
// must continue.
func TestAThreadThatIsRefusedIsAnError(t *testing.T) {
	dev := open(t, device.Options{Threads: 3})
	defer dev.Close()
	measure := func() error {
		_, err := dev.(device.PeakMeasurer).MeasurePeak(device.PeakF32, time.Millisecond)
		return err
	}
	if os.Getenv(refusedVariable) != "" { // in the child process
		if err := measure(); err == nil ||
			!strings.Contains(err.Error(), "thread team: got 2 threads, want 3: Resource temporarily unavailable") {
			t.Errorf("got %v, want an error that names the threads", err)
		}
		if err := measure(); err == nil { // after the failure, there must be no incomplete team
			t.Error("a second attempt succeeded")
		}
		return
	}
	if err := measure(); err != nil {
		t.Fatal(err)
	}
	refuse := nativetest.RefuseThreads(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestAThreadThatIsRefusedIsAnError$")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+refuse, refusedVariable+"=2")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
