package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

const (
	ownMountsVariable = "HETERO_TEST_OWN_MOUNTS" // set in the test process that has its own mount namespace
	builtVariable     = "HETERO_TEST_PROGRAM"    // path of the program that the parent process built
)

// inOwnMounts reports whether this process has its own mount namespace, so that other processes do not see its mounts.
// If not, inOwnMounts runs the test in a new process that has one, and returns false. The caller must then return.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownMountsVariable) == t.Name() {
		return true
	}
	path, err := builtProgram()
	if err != nil {
		t.Fatal(err)
	}
	self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	self.Env = append(os.Environ(), ownMountsVariable+"="+t.Name(), builtVariable+"="+path)
	hasOwnMounts(self)
	out, err := self.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		t.Errorf("in its own mount namespace:\n%s", out)
	case err != nil:
		needtest.Missing(t, "namespaces", err)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	default:
		t.Logf("%s", out)
	}
	return false
}

// smallDisk returns the folder of a separate file system of limited size.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := mountTmpfs(dir, options); err != nil {
		needtest.Missing(t, "namespaces", fmt.Errorf("mount a tmpfs: %w", err))
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill uses all space of a disk, and keeps it full until free is called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = file.Write(block)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // fills the disk repeatedly, because a failed save frees space
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := file.Write(block); err != nil {
					time.Sleep(time.Millisecond)
				}
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		if err := errors.Join(file.Close(), os.Remove(path)); err != nil {
			t.Error(err)
		}
	}
}
