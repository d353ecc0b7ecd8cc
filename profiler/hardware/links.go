package hardware

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// LinkSource measures links. A LinkSource need not be safe for concurrent use.
type LinkSource interface {
	Links() []telemetry.Link         // the links; they do not change
	Sample(into []telemetry.Traffic) // measures the traffic of the links, in the order of Links
}

// LinkSource returns the source of a GPU's links: PCIe and NVLink. If separate is true, every NVLink connection is a
// separate link. Otherwise, one link contains the sum of all connections. A measurement takes about 40 ms, because NVML
// measures each direction of PCIe for 20 ms. If the GPU is lost, the traffic of its links is unknown.
func (g *GPUs) LinkSource(index int, separate bool) (LinkSource, error) {
	at := slices.IndexFunc(g.list, func(gpu GPU) bool { return gpu.Index == index })
	if at < 0 {
		return nil, fmt.Errorf("GPU %d: this machine has %d GPUs%s", index, len(g.list), because(g.reason))
	}
	return g.driver.links(&g.list[at], separate), nil
}

// Links measures the traffic of all links of its sources in the background. It is safe for concurrent use.
type Links struct {
	sources []LinkSource
	list    []telemetry.Link

	mu      sync.Mutex // guards the following fields
	last    []telemetry.Traffic
	sampled time.Time
	busy    bool
	closed  bool
	working sync.WaitGroup
	fresh   []telemetry.Traffic // used only by the goroutine that measures
}

// NewLinks returns the Links of all links of the sources.
func NewLinks(sources ...LinkSource) *Links {
	l := &Links{sources: sources}
	for _, s := range sources {
		l.list = append(l.list, s.Links()...)
	}
	l.last, l.fresh = make([]telemetry.Traffic, len(l.list)), make([]telemetry.Traffic, len(l.list))
	for i := range l.last {
		l.last[i] = telemetry.UnknownTraffic()
	}
	return l
}

// All describes the links. The caller must not change the slice.
func (l *Links) All() []telemetry.Link { return l.list }

// Sample copies the newest measurement to dst, in the order of All. dst must have the same length. If the measurement
// is older than half a second, Sample also starts another one in the background. It never waits for a measurement.
func (l *Links) Sample(dst []telemetry.Traffic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	copy(dst, l.last)
	now := time.Now()
	if len(l.list) == 0 || l.busy || l.closed || !l.sampled.IsZero() && now.Sub(l.sampled) < sampleEvery {
		return
	}
	l.sampled, l.busy = now, true
	l.working.Add(1)
	go l.measure()
}

// measure measures all links.
func (l *Links) measure() {
	defer l.working.Done()
	rest := l.fresh
	for _, s := range l.sources {
		n := len(s.Links())
		s.Sample(rest[:n])
		rest = rest[n:]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	copy(l.last, l.fresh)
	l.busy = false
}

// Close waits for the measurement in progress. The caller must close the Links before their GPUs.
func (l *Links) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.working.Wait()
	return nil
}
