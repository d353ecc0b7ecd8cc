package cuda

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Some states of a driver are not faults. Every other state must have its message.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		err    error
		want   string
		absent bool
	}{
		{startError(-1, "libcuda.so.1: cannot open shared object file: No such file or directory"), "cuda: no driver",
			true},
		{startError(-1, "/lib/libcuda.so.1: file too short"),
			"the driver's library cannot be used: /lib/libcuda.so.1: file too short", false},
		{startError(100, ""), "cuda: no GPU: the driver shows none", true},
		{startError(34, ""), "remove its folder from LD_LIBRARY_PATH", false},
		{startError(802, ""), "nvidia-fabricmanager", false},
		{startError(7, ""), "CUDA error 7", false},
		{versionError(12080, 13000), "the driver supports CUDA 12.8, this program was built with CUDA 13.0: install a newer driver, or build with a CUDA 12 toolkit",
			false},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || !errors.Is(c.err, device.ErrUnavailable) {
			t.Errorf("got %v, want %q", c.err, c.want)
		}
		if got := errors.As(c.err, new(device.AbsentError)); got != c.absent {
			t.Errorf("%v: absent %v, want %v", c.err, got, c.absent)
		}
	}
	for _, driver := range []int{13000, 13010, 14000} {
		if err := versionError(driver, 13000); err != nil {
			t.Errorf("driver %d: got %v", driver, err)
		}
	}
}

// CUDA must use all hardware queues, except if the user has set their number.
func TestWidenLeavesWhatTheUserSet(t *testing.T) {
	for _, c := range []struct {
		set  bool
		want string
	}{{true, "4"}, {false, "32"}} {
		t.Setenv(queuesVariable, "4")
		if !c.set {
			os.Unsetenv(queuesVariable)
		}
		if err := widen(); err != nil || os.Getenv(queuesVariable) != c.want {
			t.Errorf("got %q, %v, want %q", os.Getenv(queuesVariable), err, c.want)
		}
	}
}
