package system

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/cgroup"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// sampleEvery is the shortest interval between measurements. It limits the cost if Sample is called in every step.
const sampleEvery = 500 * time.Millisecond

// Load describes the resources that this process uses, relative to those that it may use. Other processes, such as
// other ranks of the machine, do not influence the values. A value that cannot be read is NaN.
type Load struct {
	CPUPercent    float64 // CPU time of the process since the previous sample, relative to the CPUs that it may use
	MemoryPercent float64 // resident memory of the process, relative to the memory that it may use
	ResidentBytes int64   // resident memory; 0 if it cannot be read
}

// Limits contains limits of a process that the operating system does not know. A value of 0 means no limit.
type Limits struct {
	// Threads is the number of threads with which the process computes.
	Threads int
	// Processes is the number of processes that share the CPU quota and the affinity of this process: the ranks that
	// the same parent process has started.
	Processes int
	// MemoryBytes is the part of the memory that this process may use.
	MemoryBytes int64
	// PID is the process to measure, in the same control groups; 0: this process.
	PID int
}

// folder returns the folder of the process in /proc.
func (l Limits) folder() string {
	if l.PID == 0 {
		return "proc/self"
	}
	return "proc/" + strconv.Itoa(l.PID)
}

// cpus returns the number of CPUs that the process may use. The parameter allowed is the number that affinity and quota
// allow.
func (l Limits) cpus(allowed float64) float64 {
	allowed /= float64(max(l.Processes, 1))
	if l.Threads > 0 {
		allowed = min(allowed, float64(l.Threads))
	}
	return allowed
}

// Put copies the values to the sensors of a telemetry sample.
func (l *Load) Put(s *telemetry.Sample) {
	s[telemetry.Utilization], s[telemetry.Memory] = l.CPUPercent, l.MemoryPercent
}

// Sampler measures the Load of this process. It is safe for concurrent use.
type Sampler struct {
	mu      sync.Mutex
	source  source
	limits  Limits
	usable  float64 // number of CPUs on which the process may run
	memory  float64 // memory that the process may use, in bytes
	sampled time.Time
	cpuTime time.Duration // CPU time of the process at the time sampled
	load    Load
	first   bool // no Load has been measured yet
	err     error
}

// source provides the values that a Sampler measures.
type source interface {
	cpuTime() (time.Duration, error) // CPU time of all threads since the start of the process
	resident() (int64, error)        // resident memory in bytes
	quota() float64                  // current CPU quota, in CPUs; +Inf without a quota
	io.Closer
}

// NewSampler starts to measure this process. Percentages are relative to the smaller limit: the one in limits, or the
// one that Detect returns. The sampler reads the CPU quota at each measurement, because a quota can change.
func NewSampler(limits Limits) *Sampler {
	host, err := Detect()
	self, openErr := openSelf(limits)
	if err == nil {
		err = openErr
	}
	return newSampler(self, host, limits, err)
}

func newSampler(from source, host Host, limits Limits, err error) *Sampler {
	memory := host.Memory.Limit
	if limits.MemoryBytes > 0 {
		memory = min(memory, limits.MemoryBytes)
	}
	s := &Sampler{source: from, limits: limits, usable: float64(host.CPU.Usable), memory: float64(memory), first: true,
		err: err}
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
		CPUPercent: min(100,
			100*(cpu-s.cpuTime).Seconds()/(elapsed.Seconds()*s.limits.cpus(min(s.usable, s.source.quota())))),
		MemoryPercent: min(100, 100*float64(resident)/s.memory),
		ResidentBytes: resident,
	}
	s.sampled, s.cpuTime, s.first = s.sampled.Add(elapsed), cpu, false
	return s.load
}

// fail ends the measurements and sets the values to NaN. Otherwise, old values would look like new ones.
func (s *Sampler) fail(err error) Load {
	s.err = err
	s.load = Load{CPUPercent: math.NaN(), MemoryPercent: math.NaN()}
	return s.load
}

// self is the source for this process, or for the process of Limits.PID. It reuses its buffers, so that sampling does
// not allocate.
type self struct {
	statm    *os.File
	stat     *os.File    // proc/PID/stat of another process; nil: this process
	quotas   []quotaFile // quotas of the process's control group and its parents
	text     [128]byte
	pageSize int64
}

// quotaFile contains the files of the CPU quota of one control group.
type quotaFile struct {
	quota  *os.File
	period *os.File // nil: version 2, whose file contains both numbers
}

func openSelf(limits Limits) (*self, error) {
	statm, err := os.Open("/" + limits.folder() + "/statm")
	p := &self{statm: statm, pageSize: int64(os.Getpagesize())}
	if limits.PID != 0 && err == nil {
		p.stat, err = os.Open("/" + limits.folder() + "/stat")
	}
	folders, v2 := cgroup.Read(os.DirFS("/")).Folders("cpu")
	for _, folder := range folders {
		if v2 {
			if file, err := os.Open(filepath.Join("/", folder, cgroup.CPUMaxV2)); err == nil { // not in the root group
				p.quotas = append(p.quotas, quotaFile{quota: file})
			}
			continue
		}
		quota, err1 := os.Open(filepath.Join("/", folder, cgroup.CPUQuotaV1))
		period, err2 := os.Open(filepath.Join("/", folder, cgroup.CPUPeriodV1))
		if err1 != nil || err2 != nil {
			quota.Close() // for a nil file, Close only returns an error
			period.Close()
			continue
		}
		p.quotas = append(p.quotas, quotaFile{quota, period})
	}
	return p, err
}

func (p *self) quota() float64 {
	cpus := math.Inf(1)
	for _, f := range p.quotas {
		n, _ := f.quota.ReadAt(p.text[:], 0) // an error means that the file is shorter than the buffer
		quota, rest := number(p.text[:n])
		if f.period != nil {
			n, _ = f.period.ReadAt(p.text[:], 0)
			rest = p.text[:n]
		}
		if period, _ := number(rest); quota > 0 && period > 0 { // "max" and -1 mean no quota
			cpus = min(cpus, float64(quota)/float64(period))
		}
	}
	return cpus
}

// tick is the unit of times in /proc/PID/stat: Linux reports them in hundredths of a second on all architectures.
const tick = time.Second / 100

func (p *self) cpuTime() (time.Duration, error) {
	if p.stat == nil {
		return platform.ProcessTime()
	}
	var text [1024]byte
	n, err := p.stat.ReadAt(text[:], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	// The name in parentheses may contain spaces. The times of user and system are the 12th and 13th field after it.
	fields := bytes.Fields(text[bytes.LastIndexByte(text[:n], ')')+1 : n])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s: got %d fields, want more", p.stat.Name(), len(fields))
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

func (p *self) resident() (int64, error) {
	n, err := p.statm.ReadAt(p.text[:], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	pages, err := secondField(p.text[:n])
	return pages * p.pageSize, err
}

func (p *self) Close() error {
	err := p.statm.Close()
	if p.stat != nil {
		err = errors.Join(err, p.stat.Close())
	}
	for _, f := range p.quotas {
		err = errors.Join(err, f.quota.Close())
		if f.period != nil {
			err = errors.Join(err, f.period.Close())
		}
	}
	return err
}

// secondField returns the second number of a line like that of proc/self/statm, whose first two numbers are the total
// and the resident pages.
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
