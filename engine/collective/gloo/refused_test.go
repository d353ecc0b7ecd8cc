//go:build cgo && linux

package gloo_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// The system may refuse to start Gloo's thread, or the thread that checks time-outs. The C++ exception must become an
// error, and must not end the process.
func TestAThreadThatIsRefusedIsAnError(t *testing.T) {
	nativetest.Need(t, "gloo", gloo.LibraryName)
	refuse := nativetest.RefuseThreads(t)
	for name, more := range map[string][]string{
		"left alone":             nil,
		"Gloo's is refused":      {"HETERO_REFUSE_THREADS=1"},
		"the watcher is refused": {"HETERO_REFUSE_THREADS=2"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(append(os.Environ(), roleVariable+`={"Alone":true}`, "LD_PRELOAD="+refuse), more...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if refused := strings.Contains(string(out), "Resource temporarily unavailable"); refused != (more != nil) {
				t.Errorf("got %q, want an error where a thread is refused", out)
			}
		})
	}
}
