//go:build cgo && linux

package profile

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/hardware/hardwaretest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// fakeNetwork has one interface. A test sets its counters.
type fakeNetwork struct {
	sent  float64
	meter telemetry.Meter
	begun time.Time
}

func (f *fakeNetwork) Links() []telemetry.Link {
	return []telemetry.Link{{Kind: telemetry.LinkNetwork, Name: "eth0", Limit: 1.25e9, Basis: telemetry.BasisCounter},
		{Kind: telemetry.LinkLoopback, Name: "lo", Basis: telemetry.BasisCounter}}
}

func (f *fakeNetwork) Sample(into []telemetry.Traffic) {
	into[0], into[1] = f.meter.Add(time.Since(f.begun).Seconds(), f.sent, 0), telemetry.UnknownTraffic()
}

func TestWatchOfAMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast, small := hardwaretest.H100(), hardwaretest.GTX1650()
		fast.NVLinks, fast.Utilization, fast.UsedBytes, fast.NowMHz, fast.PowerWatts, fast.Temperature = 2, 97, 60<<30,
			1485, 699, 86
		fast.Reasons, fast.PCIeKBytes = nvml.ClocksThrottleReasonSwPowerCap|nvml.ClocksThrottleReasonHwThermalSlowdown,
			[2]uint32{2_000_000, 12_600_000}
		small.NoTraffic = true
		gpus := hardware.OpenNVML(hardwaretest.Machine(fast, small))
		defer gpus.Close()
		network := &fakeNetwork{begun: time.Now()}
		w, err := openWatch(gpus, network)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		w.look()
		time.Sleep(time.Second)
		network.sent = 250e6
		fast.Set(func(c *hardwaretest.Card) { c.NVLinkBytes[0] += 2_656_200 << 10 })
		v := w.look()
		_, got, _ := strings.Cut(v.text(), "\n\n")
		const want = `GPU  name                     use %  memory %  °C  W    clock %  throttled
0    NVIDIA H100 80GB HBM3    97     75        86  699  75       hardware slowdown, thermal throttling, power limit
1    NVIDIA GeForce GTX 1650  0      0         41  9    14       -

link     of       kind      sent       received   limit      in use  measured by
pcie     GPU 0    pcie      2 GB/s     12.6 GB/s  63 GB/s    20.0 %  means over 20 ms
nvlink0  GPU 0    nvlink    2.72 GB/s  0 B/s      26.6 GB/s  10.2 %  byte counter
nvlink1  GPU 0    nvlink    2.72 GB/s  0 B/s      26.6 GB/s  10.2 %  byte counter
pcie     GPU 1    pcie      -          -          15.8 GB/s  -       means over 20 ms
eth0     machine  network   250 MB/s   0 B/s      1.25 GB/s  20.0 %  byte counter
lo       machine  loopback  -          -          -          -       byte counter
`
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`{"of":"machine","kind":"network","name":"eth0","limit":1250000000,"basis":"counter","sent":250000000,"received":0}`,
			`{"of":"GPU 1","kind":"pcie","name":"pcie","limit":15753846153.846153,"basis":"sample"}`,
			`"utilization_percent":97,`} {
			if !strings.Contains(string(text), part) {
				t.Errorf("got %s, want also %s", text, part)
			}
		}
		fast.Set(func(c *hardwaretest.Card) { c.Lost = true })
		time.Sleep(time.Second)
		v = w.look()
		if text := v.text(); !strings.Contains(text, "ERROR_GPU_IS_LOST") || v.GPUs[0].Utilization != nil ||
			v.Links[1].Sent != nil {
			t.Errorf("a lost GPU: got\n%s", text)
		}
	})
}

func TestWatchWithoutAGPU(t *testing.T) {
	w, err := openWatch(hardware.None("no NVIDIA driver"), &fakeNetwork{begun: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	v := w.look()
	if got := v.text(); !strings.Contains(got, "no GPU: no NVIDIA driver\n") || !strings.Contains(got, "eth0") {
		t.Errorf("got\n%s", got)
	}
}
