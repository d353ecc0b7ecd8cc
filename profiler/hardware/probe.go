package hardware

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/profiler/system"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

const (
	// sampleEvery is the shortest interval between measurements. It limits the cost if Sample is called in every
	// step.
	sampleEvery = 500 * time.Millisecond
	// processesEvery is the interval at which the processes on a GPU are counted. It is longer because this is the only
	// query of the driver that allocates memory.
	processesEvery = 5 * time.Second
)

// Probe measures the telemetry of one device. It is safe for concurrent use.
type Probe struct {
	mu      sync.Mutex
	gpu     *GPU // nil for a CPU
	driver  driver
	host    process
	sampled time.Time
	counted time.Time // time of the last count of the processes on the GPU
	last    telemetry.Sample
	err     error
}

// process measures values about this process and this machine.
type process interface {
	load() system.Load
	waits() system.Wait
	sensors() system.Sensors
	close() error
}

// ProbeCPU returns a Probe of this process on the CPU. Its utilization and memory are relative to limits.
func ProbeCPU(limits system.Limits) *Probe { return newProbe(nil, nil, openProcess(limits)) }

// Probe returns a Probe of a GPU. It also measures the CPU time of the process to which limits apply. Close the Probe
// before the GPUs.
func (g *GPUs) Probe(index int, limits system.Limits) (*Probe, error) {
	at := slices.IndexFunc(g.list, func(gpu GPU) bool { return gpu.Index == index })
	if at < 0 {
		return nil, fmt.Errorf("got GPU %d, but this machine has %d GPUs%s", index, len(g.list), because(g.reason))
	}
	gpu := g.list[at]
	return newProbe(&gpu, g.driver, openProcess(limits)), nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func newProbe(gpu *GPU, d driver, host process) *Probe {
	return &Probe{gpu: gpu, driver: d, host: host, last: telemetry.Unknown()}
}

// Sample returns the telemetry. It measures at most twice a second and otherwise returns the last measurement. The
// error is a *LostError; in that case, all values are unknown.
func (p *Probe) Sample() (telemetry.Sample, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.err != nil || !p.sampled.IsZero() && now.Sub(p.sampled) < sampleEvery {
		return p.last, p.err
	}
	p.sampled = now
	p.last = telemetry.Unknown()
	wait := p.host.waits()
	wait.Put(&p.last)
	if p.gpu == nil {
		load, sensors := p.host.load(), p.host.sensors()
		load.Put(&p.last)
		sensors.Put(&p.last)
		return p.last, nil
	}
	count := p.counted.IsZero() || now.Sub(p.counted) >= processesEvery
	if count {
		p.counted = now
	}
	if err := p.driver.sample(p.gpu, count, &p.last); err != nil {
		p.last, p.err = telemetry.Unknown(), err
	}
	return p.last, p.err
}

// Close releases the files of the probe.
func (p *Probe) Close() error { return p.host.close() }

// self measures this process.
type self struct {
	sampler *system.Sampler
	waiting *system.WaitSampler
	sensing *system.SensorSampler
}

func openProcess(limits system.Limits) *self {
	return &self{system.NewSampler(limits), system.NewWaitSampler(limits), system.NewSensorSampler()}
}

func (s *self) load() system.Load       { return s.sampler.Sample() }
func (s *self) waits() system.Wait      { return s.waiting.Sample() }
func (s *self) sensors() system.Sensors { return s.sensing.Sample() }
func (s *self) close() error            { return errors.Join(s.sampler.Close(), s.waiting.Close()) }
