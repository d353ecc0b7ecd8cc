//go:build cgo && linux

package hardware_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/hardware/hardwaretest"
	"github.com/hetero-train/hetero-train/profiler/system"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func TestMachinesWithoutAGPUSayWhy(t *testing.T) {
	for _, c := range []struct {
		name string
		lib  nvml.Interface
		want string
	}{
		{"a laptop", hardwaretest.Laptop(), "no NVIDIA driver"},
		{"the driver is not loaded", hardwaretest.Broken(nvml.ERROR_DRIVER_NOT_LOADED), "not loaded"},
		{"updated and not restarted", hardwaretest.Broken(nvml.ERROR_LIB_RM_VERSION_MISMATCH), "restart"},
		{"no permission", hardwaretest.Broken(nvml.ERROR_NO_PERMISSION), "has no permission"},
		{"another answer", hardwaretest.Broken(nvml.ERROR_UNKNOWN), "ERROR_UNKNOWN"},
		{"a driver and no card", hardwaretest.Machine(), "there is no GPU"},
	} {
		gpus := hardware.OpenNVML(c.lib)
		if len(gpus.All()) != 0 || !strings.Contains(gpus.Reason(), c.want) {
			t.Errorf("%s: got %d GPUs, reason %q, want none and %q", c.name, len(gpus.All()), gpus.Reason(), c.want)
		}
		if _, err := gpus.Probe(0, system.Limits{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: probe: got %v, want an error with %q", c.name, err, c.want)
		}
		gpus.Close()
	}
}

func TestThisMachineIsAskedWithoutAnError(t *testing.T) {
	gpus := hardware.Open()
	defer gpus.Close()
	if n := len(gpus.All()); (n == 0) == (gpus.Reason() == "") {
		t.Errorf("got %d GPUs and the reason %q, want a reason exactly where there is none", n, gpus.Reason())
	}
	t.Log(gpus.All(), gpus.Reason())
}

func TestCardsOfMixedMachinesAreDescribed(t *testing.T) {
	cards := []*hardwaretest.Card{hardwaretest.GTX1650(), hardwaretest.RTX3060(), hardwaretest.H100()}
	gpus := hardware.OpenNVML(hardwaretest.Machine(cards...))
	defer gpus.Close()
	want := []struct {
		architecture, capability string
		sms, cores, links        int
		bus                      string
	}{
		{"Turing", "7.5", 14, 896, 0, "00000000:01:00.0"},
		{"Ampere", "8.6", 28, 3584, 0, "00000000:02:00.0"},
		{"Hopper", "9.0", 132, 16896, 18, "00000000:03:00.0"},
	}
	list := gpus.All()
	if len(list) != 3 || gpus.Reason() != "" {
		t.Fatalf("got %v, %q", list, gpus.Reason())
	}
	for i, g := range list {
		w, c := want[i], cards[i]
		if g.Index != i || g.Name != c.Name || g.UUID != c.UUID || g.Vendor != hardware.Nvidia ||
			g.Architecture != w.architecture ||
			g.ComputeCapability != w.capability || g.SMs != w.sms || g.CUDACores != w.cores || g.NVLinks != w.links ||
			g.BusID != w.bus {
			t.Errorf("GPU %d: got %+v, want %+v", i, g, w)
		}
		if g.MemoryBytes != int64(c.MemoryBytes) || g.PowerLimitWatts != float64(c.LimitWatts) ||
			g.SMClockMaxMHz != int(c.ClockMHz) ||
			g.SMClockMHz != int(c.NowMHz) || g.TemperatureC != int(c.Temperature) || g.Driver != "580.95.05" ||
			g.CUDA != "13.0" {
			t.Errorf("GPU %d: got %+v, want %+v", i, g, c)
		}
	}
}

func TestADGXIsDescribed(t *testing.T) {
	machine, _ := hardwaretest.DGX()
	gpus := hardware.OpenNVML(machine)
	defer gpus.Close()
	list := gpus.All()
	if len(list) != 8 {
		t.Fatalf("got %d GPUs, %q, %q", len(list), gpus.Reason(), gpus.Warnings())
	}
	uuids := map[string]bool{}
	for i, g := range list {
		uuids[g.UUID] = true
		if g.Index != i || !strings.Contains(g.Name, "A100-SXM4-40GB") || g.Architecture != "Ampere" || g.SMs != 108 ||
			g.NVLinks != 12 || g.MemoryBytes != 40<<30 || g.MIG {
			t.Errorf("got %+v", g)
		}
	}
	if len(uuids) != 8 {
		t.Errorf("got UUIDs %v, want 8", uuids)
	}
}

func TestAnOldDriverIsNotAskedForWhatItLacks(t *testing.T) {
	old := hardwaretest.GTX1650()
	old.OldDriver = true
	gpus := hardware.OpenNVML(hardwaretest.Machine(old))
	defer gpus.Close()
	if list := gpus.All(); len(list) != 1 || list[0].CUDACores != 0 || list[0].SMs != 0 ||
		list[0].Architecture != "Turing" {
		t.Errorf("got %+v, want a card whose cores are not known", list)
	}
}

func TestACardThatIsGoneAtTheStartIsAWarning(t *testing.T) {
	gone := hardwaretest.RTX3060()
	gone.Lost = true
	gpus := hardware.OpenNVML(hardwaretest.Machine(gone, hardwaretest.H100()))
	list, warnings := gpus.All(), gpus.Warnings()
	if len(list) != 1 || list[0].Index != 1 || len(warnings) != 1 || !strings.Contains(warnings[0], "GPU 0") ||
		!strings.Contains(warnings[0], "LOST") {
		t.Errorf("got %v, warnings %q", list, warnings)
	}
	gpus.Close()
	all := hardware.OpenNVML(hardwaretest.Machine(gone))
	if len(all.All()) != 0 || !strings.Contains(all.Reason(), "none of the 1 GPUs responds") {
		t.Errorf("got %v, %q", all.All(), all.Reason())
	}
}

func probeOf(t *testing.T, cards ...*hardwaretest.Card) *hardware.Probe {
	t.Helper()
	gpus := hardware.OpenNVML(hardwaretest.Machine(cards...))
	t.Cleanup(gpus.Close)
	p, err := gpus.Probe(0, system.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestTelemetryOfACardThatWorks(t *testing.T) {
	card := hardwaretest.H100()
	card.Utilization, card.UsedBytes, card.NowMHz, card.PowerWatts, card.Temperature = 97, 60<<30, 1485, 699, 86
	card.Reasons = nvml.ClocksThrottleReasonSwPowerCap | nvml.ClocksThrottleReasonHwThermalSlowdown
	card.NowWidth, card.Uncorrected, card.Processes = 4, 3, []uint32{uint32(os.Getpid()), 1 << 30}
	h, err := probeOf(t, card).Sample()
	if err != nil {
		t.Fatal(err)
	}
	if h[telemetry.Utilization] != 97 || h[telemetry.Memory] != 75 || h[telemetry.Clock] != 75 ||
		h[telemetry.Power] != 699 || h[telemetry.Temperature] != 86 ||
		h[telemetry.PCIe] != 25 || h[telemetry.ECCErrors] != 3 || h[telemetry.OtherProcesses] != 1 {
		t.Errorf("got %+v", h)
	}
	if got, want := throttled(&h), [3]float64{1, 1, 1}; got != want {
		t.Errorf("got throttled %v, want %v", got, want)
	}
}

// throttled returns the values of the three throttling sensors: thermal, power, hardware.
func throttled(s *telemetry.Sample) [3]float64 {
	return [3]float64{s[telemetry.ThermalThrottling], s[telemetry.PowerLimit], s[telemetry.HardwareSlowdown]}
}

func TestWhatIsNoFaultIsNoThrottle(t *testing.T) {
	for reasons, want := range map[uint64][3]float64{
		0:                                   {},
		nvml.ClocksThrottleReasonGpuIdle:    {},
		nvml.ClocksThrottleReasonSyncBoost:  {},
		nvml.ClocksThrottleReasonSwPowerCap: {0, 1, 0},
		nvml.ClocksThrottleReasonHwSlowdown: {0, 0, 1},
		nvml.ClocksThrottleReasonSwThermalSlowdown:               {1, 0, 0},
		nvml.ClocksThrottleReasonApplicationsClocksSetting | 256: {},
	} {
		card := hardwaretest.H100()
		card.Reasons = reasons
		if h, err := probeOf(t, card).Sample(); err != nil || throttled(&h) != want {
			t.Errorf("reasons %#x: got %v, %v, want %v", reasons, throttled(&h), err, want)
		}
	}
}

func TestWhatACardDoesNotTellIsUnknown(t *testing.T) {
	h, err := probeOf(t, hardwaretest.GTX1650()).Sample()
	if err != nil || !math.IsNaN(h[telemetry.ECCErrors]) || h[telemetry.PCIe] != 100 {
		t.Errorf("got %+v, %v, want unknown ECC errors", h, err)
	}
}

func TestACardThatFallsOffTheBusIsLostForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		card := hardwaretest.RTX3060()
		p := probeOf(t, card)
		if _, err := p.Sample(); err != nil {
			t.Fatal(err)
		}
		card.Set(func(c *hardwaretest.Card) { c.Lost = true })
		time.Sleep(time.Second)
		for range 2 {
			h, err := p.Sample()
			var lost *hardware.LostError
			if !errors.As(err, &lost) || lost.GPU.Name != card.Name || !strings.Contains(err.Error(), "RTX 3060") ||
				!strings.Contains(err.Error(), "ERROR_GPU_IS_LOST") {
				t.Fatalf("got %v, want a LostError that names the card", err)
			}
			if !math.IsNaN(h[telemetry.Utilization]) || !math.IsNaN(h[telemetry.ECCErrors]) {
				t.Errorf("got %+v, want nothing known", h)
			}
			card.Set(func(c *hardwaretest.Card) { c.Lost = false }) // the GPU was reset, and responds again
			time.Sleep(time.Second)
		}
	})
}

func TestSamplingACardIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		card := hardwaretest.H100()
		p := probeOf(t, card)
		card.Set(func(c *hardwaretest.Card) { c.Utilization = 10 })
		if h, _ := p.Sample(); h[telemetry.Utilization] != 10 {
			t.Fatalf("got %+v", h)
		}
		card.Set(func(c *hardwaretest.Card) { c.Utilization = 20 })
		if h, _ := p.Sample(); h[telemetry.Utilization] != 10 {
			t.Errorf("at once: got %v percent, want the figure of before", h[telemetry.Utilization])
		}
		time.Sleep(500 * time.Millisecond)
		if h, _ := p.Sample(); h[telemetry.Utilization] != 20 {
			t.Errorf("0.5 s later: got %v percent, want the new figure", h[telemetry.Utilization])
		}
		for range 95 { // the clock advances to 10 s
			time.Sleep(100 * time.Millisecond)
			p.Sample()
		}
		if n := card.ProcessesAsk; n < 2 || n > 3 {
			t.Errorf("processes were counted %d times in 10 s, want every 5 s", n)
		}
	})
}

func TestGPUsAreFoundByTheirPlaceOnTheBus(t *testing.T) {
	gpus := hardware.OpenNVML(hardwaretest.Machine(hardwaretest.GTX1650(), hardwaretest.RTX3060(), hardwaretest.H100()))
	defer gpus.Close()
	for _, g := range gpus.All() {
		for _, id := range []string{g.BusID, strings.ToLower(g.BusID), strings.TrimPrefix(g.BusID, "0000")} {
			// NVML and CUDA write the domain of a bus id with different numbers of digits.
			if got, err := gpus.At(id); err != nil || got.Index != g.Index {
				t.Errorf("%q: got GPU %d, %v, want %d", id, got.Index, err, g.Index)
			}
		}
	}
	for _, id := range []string{"", "0000:7f:00.0"} {
		if g, err := gpus.At(id); err == nil {
			t.Errorf("%q: got GPU %d, want an error", id, g.Index)
		}
	}
}
