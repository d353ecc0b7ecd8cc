package devices

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

func TestADeviceWithoutItsCardIsAnError(t *testing.T) {
	if gpu, err := CardOf(device.Info{Name: "cpu:0", Kind: "cpu"}, hardware.None("none")); gpu != nil || err != nil {
		t.Errorf("a CPU: got %v, %v", gpu, err)
	}
	if _, err := CardOf(device.Info{Name: "cuda:1", Kind: "cuda"}, hardware.None("none")); err == nil ||
		!strings.Contains(err.Error(), "cuda:1") {
		t.Errorf("a GPU that NVML does not know: got %v", err)
	}
}
