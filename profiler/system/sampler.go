package system

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// sampleEvery is the shortest interval between measurements. It limits the cost if Sample is called in every step.
const sampleEvery = 500 * time.Millisecond

// Load describes how much of its resources the process uses. A value that cannot be read is NaN.
type Load struct {
	CPUPercent    float64 // CPU time since the previous sample, relative to the process's CPU quota
	MemoryPercent float64 // resident memory, relative to the process's memory limit
	ResidentBytes int64   // resident memory; 0 if it cannot be read
}

// Put copies the values to the sensors of a telemetry sample.
func (l *Load) Put(s *telemetry.Sample) {
	s[telemetry.Utilization], s[telemetry.Memory] = l.CPUPercent, l.MemoryPercent
}

// Sampler measures the Load of this process. It is safe for concurrent use.
type Sampler struct {
	mu      sync.Mutex
	source  source
	quota   float64 // in CPUs
	limit   float64 // in bytes
	sampled time.Time
	cpuTime time.Duration // CPU time of the process at the time sampled
	load    Load
	first   bool // no Load has been measured yet
	err     error
}

// source provides the values that a Sampler measures.
type source interface {
	cpuTime() (time.Duration, error) // of all threads, since the start of the process
	resident() (int64, error)        // resident memory in bytes
	io.Closer
}

// NewSampler starts to measure this process. Percentages are relative to the limits that Detect returns.
func NewSampler() *Sampler {
	host, err := Detect()
	self, openErr := openSelf()
	if err == nil {
		err = openErr
	}
	return newSampler(self, host, err)
}

func newSampler(from source, host Host, err error) *Sampler {
	s := &Sampler{source: from, quota: host.CPU.Quota, limit: float64(host.Memory.Limit), first: true, err: err}
	s.load = Load{CPUPercent: math.NaN(), MemoryPercent: math.NaN()}
	s.sampled = time.Now()
	if s.err == nil {
		s.cpuTime, s.err = from.cpuTime()
	}
	return s
}

// Err returns the reason why the Load is NaN, or nil.
func (s *Sampler) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close releases the files of the sampler.
func (s *Sampler) Close() error { return s.source.Close() }

// Sample returns the Load. It measures at most twice a second and otherwise returns the last measurement. It does not
// allocate.
func (s *Sampler) Sample() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	elapsed := time.Since(s.sampled)
	// The first interval may be shorter, so that the first step has values, but not so short that noise dominates.
	if s.err != nil || elapsed < time.Millisecond || elapsed < sampleEvery && !s.first {
		return s.load
	}
	cpu, err := s.source.cpuTime()
	if err != nil {
		return s.fail(err)
	}
	resident, err := s.source.resident()
	if err != nil {
		return s.fail(err)
	}
	s.load = Load{
		CPUPercent:    min(100, 100*(cpu-s.cpuTime).Seconds()/(elapsed.Seconds()*s.quota)),
		MemoryPercent: 100 * float64(resident) / s.limit,
		ResidentBytes: resident,
	}
	s.sampled, s.cpuTime, s.first = s.sampled.Add(elapsed), cpu, false
	return s.load
}

// fail ends the measurements and sets the values to NaN, because old values would look like new ones.
func (s *Sampler) fail(err error) Load {
	s.err = err
	s.load = Load{CPUPercent: math.NaN(), MemoryPercent: math.NaN()}
	return s.load
}

// self is the source for this process. It reuses its buffers, so that sampling does not allocate.
type self struct {
	statm    *os.File
	usage    syscall.Rusage
	text     [128]byte
	pageSize int64
}

func openSelf() (*self, error) {
	statm, err := os.Open("/proc/self/statm")
	return &self{statm: statm, pageSize: int64(os.Getpagesize())}, err
}

func (p *self) cpuTime() (time.Duration, error) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &p.usage); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(p.usage.Utime.Nano() + p.usage.Stime.Nano()), nil
}

func (p *self) resident() (int64, error) {
	n, err := p.statm.ReadAt(p.text[:], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	pages, err := secondField(p.text[:n])
	return pages * p.pageSize, err
}

func (p *self) Close() error { return p.statm.Close() }

// secondField returns the second number of a line like proc/self/statm, which contains the total and the resident
// pages.
func secondField(line []byte) (int64, error) {
	value, field, digits := int64(0), 0, 0
	for _, c := range line {
		switch {
		case c == ' ' && field == 1 && digits > 0:
			return value, nil
		case c == ' ':
			field++
		case field == 1 && c >= '0' && c <= '9':
			value = value*10 + int64(c-'0')
			digits++
		}
	}
	return 0, fmt.Errorf("proc/self/statm: got %q, want numbers", line)
}
