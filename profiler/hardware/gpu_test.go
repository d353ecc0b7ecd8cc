package hardware

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/profiler/system"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func TestCoresByArchitecture(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		name         string
		cores        int
	}{
		{3, 5, "Kepler", 192}, {5, 2, "Maxwell", 128}, {6, 0, "Pascal", 64}, {6, 1, "Pascal", 128}, {7, 0, "Volta", 64},
		{7, 5, "Turing", 64},
		{8, 0, "Ampere", 64}, {8, 6, "Ampere", 128}, {8, 9, "Ada", 128}, {9, 0, "Hopper", 128},
		{10, 0, "Blackwell", 128}, {12, 0, "Blackwell", 128},
		{2, 0, "", 0}, {99, 0, "", 0},
	} {
		if name, cores := architecture(c.major, c.minor); name != c.name || cores != c.cores {
			t.Errorf("%d.%d: got %s with %d cores an SM, want %s with %d", c.major, c.minor, name, cores, c.name,
				c.cores)
		}
	}
}

// fakeProcess is a process whose values the test sets.
type fakeProcess struct {
	wait  system.Wait
	sense system.Sensors
}

func (f *fakeProcess) load() system.Load       { return system.Load{CPUPercent: 80, MemoryPercent: 25} }
func (f *fakeProcess) waits() system.Wait      { return f.wait }
func (f *fakeProcess) sensors() system.Sensors { return f.sense }
func (f *fakeProcess) close() error            { return nil }

func TestTelemetryOfTheCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nan := math.NaN()
		process := &fakeProcess{system.Wait{StolenPercent: 12, QuotaPercent: 30},
			system.Sensors{TemperatureCelsius: 91, PowerWatts: nan, ClockPercent: 60, Throttled: 1}}
		p := newProbe(nil, nil, process)
		h, err := p.Sample()
		if err != nil || h[telemetry.Utilization] != 80 || h[telemetry.Memory] != 25 || h[telemetry.StolenCPU] != 12 ||
			h[telemetry.CPUQuota] != 30 || h[telemetry.ThermalThrottling] != 1 ||
			!math.IsNaN(h[telemetry.PowerLimit]) ||
			h[telemetry.Temperature] != 91 || !math.IsNaN(h[telemetry.Power]) || h[telemetry.Clock] != 60 ||
			!math.IsNaN(h[telemetry.ECCErrors]) || !math.IsNaN(h[telemetry.OtherProcesses]) ||
			!math.IsNaN(h[telemetry.PCIe]) {
			t.Errorf("got %+v, %v", h, err)
		}
		process.wait = system.Wait{}
		if h, _ = p.Sample(); h[telemetry.StolenCPU] != 12 {
			t.Errorf("at once: got %+v, want the figures of before", h)
		}
		time.Sleep(time.Second)
		if h, _ = p.Sample(); h[telemetry.StolenCPU] != 0 || h[telemetry.CPUQuota] != 0 ||
			h[telemetry.ThermalThrottling] != 1 {
			t.Errorf("later: got %+v", h)
		}
	})
}

func TestThisProcessHasTelemetry(t *testing.T) {
	p := ProbeCPU(system.Limits{})
	defer p.Close()
	work(t)
	h, err := p.Sample()
	if err != nil || !(h[telemetry.Utilization] > 0) || !(h[telemetry.Memory] > 0) {
		t.Errorf("got %+v, %v", h, err)
	}
	t.Logf("%+v", h)
}

// work uses CPU time, for at least the minimum time between two samples.
func work(t *testing.T) {
	t.Helper()
	begun, before := time.Now(), time.Duration(-1)
	for {
		now, err := platform.ProcessTime()
		if err != nil {
			needtest.Missing(t, "system", err)
		}
		if before < 0 {
			before = now
		}
		if now-before > 20*time.Millisecond && time.Since(begun) > 50*time.Millisecond {
			return
		}
	}
}

func BenchmarkSampleCPU(b *testing.B) {
	p := ProbeCPU(system.Limits{})
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		p.sampled = time.Time{}
		p.Sample()
	}
}
