//go:build cgo && linux

package schedule

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/hardware/hardwaretest"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// The fake machine has an H100 in use and an idle GTX 1650. Its fastest active network interface has 25 Gbit/s.
func TestLiveDataOfAMachine(t *testing.T) {
	fast, small := hardwaretest.H100(), hardwaretest.GTX1650()
	fast.Utilization, fast.Temperature, small.Utilization = 97, 71, 0
	gpus := hardware.OpenNVML(hardwaretest.Machine(fast, small))
	defer gpus.Close()
	host := system.Host{Name: "node", CPU: system.CPU{Quota: 12.5}, Memory: system.Memory{Limit: 64 << 30},
		Networks: []system.Network{{Up: true, SpeedMbits: 1000}, {Up: true, SpeedMbits: 25_000}, {SpeedMbits: 100_000}}}
	d, err := liveData(&cli.App{}, "--live", host, gpus)
	if err != nil {
		t.Fatal(err)
	}
	c := d.Cluster
	if len(c.GPUs) != 2 || len(c.Types) != 2 || c.GPUs[0].Name != "node/0" || c.GPUs[0].Utilization != 0.97 ||
		c.GPUs[0].Temperature != 71 || c.GPUs[1].Utilization != 0 {
		t.Errorf("got GPUs %+v", c.GPUs)
	}
	if m := c.Machines[0]; m.CPUs != 12.5 || m.Memory != 64<<30 || m.Network != 25e9/8 ||
		c.Types[0].Memory != float64(gpus.All()[0].MemoryBytes) {
		t.Errorf("got machine %+v, types %+v", m, c.Types)
	}
	if !math.IsNaN(c.Types[0].Bandwidth) || !math.IsNaN(c.Types[0].Compute) {
		t.Errorf("got types %+v, want figures that only a profile measures to be missing", c.Types)
	}
}
