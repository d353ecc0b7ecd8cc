package system

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/hetero-train/hetero-train/engine/cgroup"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Wait describes how long the threads of this process wait for CPUs.
type Wait struct {
	// StolenPercent is the time that threads waited for CPUs that other processes used. It is in percent of the time
	// in which the threads ran or were ready to run. It is NaN if it cannot be read.
	//
	// Two kinds of waits are excluded: waits because of an exhausted CPU quota, and waits for threads of the same
	// process. The latter cannot be measured. StolenPercent therefore never exceeds the CPU time that the quota
	// permitted and the process did not get.
	StolenPercent float64
	// QuotaPercent is the time for which an exhausted CPU quota stopped threads that were ready to run. It is in
	// percent of this time plus the time in which the threads ran. It is NaN if StolenPercent is NaN.
	QuotaPercent float64
}

// Put copies the values to the sensors of a telemetry sample.
func (w *Wait) Put(s *telemetry.Sample) {
	s[telemetry.StolenCPU], s[telemetry.CPUQuota] = w.StolenPercent, w.QuotaPercent
}

// WaitSampler measures the Wait of this process between calls of Sample. It is not safe for concurrent use.
type WaitSampler struct {
	source  waitSource
	quota   float64 // CPU quota, in CPUs
	now     func() time.Time
	sampled time.Time
	threads map[int]*threadTime
	round   int
	before  time.Duration // time lost to the quota until the previous sample
	err     error
}

// waitSource provides the values that a WaitSampler measures.
type waitSource interface {
	// threads calls the function each for every thread: with its id, its run time, and the time for which it waited for
	// CPUs. Both times count from the start of the thread.
	threads(each func(id int, ran, waited time.Duration)) error
	// throttled returns the time that the control group has lost to its CPU quota since it was created, summed over all
	// CPUs. It is 0 without a quota.
	throttled() (time.Duration, error)
	io.Closer
}

type threadTime struct {
	ran, waited time.Duration
	round       int // last round in which the thread existed
}

// NewWaitSampler starts to measure this process, or the process of limits.PID.
func NewWaitSampler(limits Limits) *WaitSampler {
	host, err := Detect()
	source := openWaits("/", limits)
	return newWaitSampler(source, host.CPU.Quota, time.Now, err)
}

func newWaitSampler(source waitSource, quota float64, now func() time.Time, err error) *WaitSampler {
	w := &WaitSampler{source: source, quota: quota, now: now, threads: map[int]*threadTime{}, err: err}
	if w.err == nil {
		w.Sample()
	}
	return w
}

// Err returns the reason why StolenPercent is always NaN, or nil.
func (w *WaitSampler) Err() error { return w.err }

// Close releases the files of the sampler.
func (w *WaitSampler) Close() error { return w.source.Close() }

// Sample returns the Wait since the previous call. It returns unknown values in the first call, and if no time elapsed
// or no CPU time was used since the previous call.
func (w *WaitSampler) Sample() Wait {
	none := Wait{math.NaN(), math.NaN()}
	if w.err != nil {
		return none
	}
	now := w.now()
	elapsed := now.Sub(w.sampled)
	first := w.sampled.IsZero()
	w.round++
	var ran, waited time.Duration
	w.err = w.source.threads(func(id int, r, d time.Duration) {
		t := w.threads[id]
		if t == nil {
			t = new(threadTime)
			w.threads[id] = t
		}
		ran += max(r-t.ran, 0) // a difference below 0: a new thread has received the same id
		waited += max(d-t.waited, 0)
		t.ran, t.waited, t.round = r, d, w.round
	})
	throttled, err := w.source.throttled()
	if w.err = errors.Join(w.err, err); w.err != nil {
		return none
	}
	for id, t := range w.threads {
		if t.round != w.round {
			delete(w.threads, id)
		}
	}
	lost := throttled - w.before
	w.sampled, w.before = now, throttled
	if first || elapsed <= 0 {
		return none
	}
	// The control group may contain other processes, so lost may include times of their threads.
	stopped := max(min(waited, lost), 0)
	stolen := max(min(waited-lost, time.Duration(w.quota*float64(elapsed))-ran-lost), 0)
	return Wait{percentOf(stolen, ran), percentOf(stopped, ran)}
}

// percentOf returns a wait in percent of this wait plus the time in which threads ran.
func percentOf(wait, ran time.Duration) float64 {
	if wait == 0 {
		return 0
	}
	return 100 * float64(wait) / float64(ran+wait)
}

// procWaits reads proc and the control groups below root.
type procWaits struct {
	tasks string     // path of the folder of threads
	stats []*os.File // cpu.stat of the process's group and of its parents
	v2    bool
	text  [1024]byte
}

func openWaits(root string, limits Limits) *procWaits {
	p := &procWaits{tasks: filepath.Join(root, limits.folder(), "task")}
	folders, v2 := cgroup.Read(os.DirFS(root)).Folders("cpu")
	p.v2 = v2
	for _, folder := range folders {
		if f, err := os.Open(filepath.Join(root, folder, "cpu.stat")); err == nil { // missing in the root group
			p.stats = append(p.stats, f)
		}
	}
	return p
}

func (p *procWaits) Close() error {
	var errs []error
	for _, f := range p.stats {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// threads reads the first two numbers of proc/PID/task/ID/schedstat, which are times in ns.
func (p *procWaits) threads(each func(id int, ran, waited time.Duration)) error {
	folder, err := os.Open(p.tasks)
	if err != nil {
		return err
	}
	names, err := folder.Readdirnames(-1)
	if err = errors.Join(err, folder.Close()); err != nil {
		return err
	}
	read := 0
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		line, err := p.read(p.tasks + "/" + name + "/schedstat")
		if err != nil {
			continue // the thread has ended
		}
		ran, rest := number(line)
		waited, _ := number(rest)
		each(id, time.Duration(ran), time.Duration(waited))
		read++
	}
	if read == 0 {
		return errors.New(p.tasks + ": no schedstat: this kernel does not count the waits of threads")
	}
	return nil
}

// read is like os.ReadFile, but only for short files. It does not allocate memory.
func (p *procWaits) read(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, p.text[:])
	if err != nil {
		return nil, err
	}
	return p.text[:n], nil
}

// throttled returns the loss of the group or parent with the largest loss. A group also waits if one of its parents has
// exhausted its quota, so the losses of these groups overlap.
func (p *procWaits) throttled() (most time.Duration, err error) {
	key, unit := []byte("throttled_time "), time.Nanosecond // version 1
	if p.v2 {
		key, unit = []byte("throttled_usec "), time.Microsecond
	}
	for _, f := range p.stats {
		n, err := f.ReadAt(p.text[:], 0)
		if err != nil && err != io.EOF {
			return most, err
		}
		most = max(most, time.Duration(after(p.text[:n], key))*unit)
	}
	return most, nil
}

// after returns the number that follows key in text, or 0 if text does not contain key.
func after(text, key []byte) int64 {
	_, rest, _ := bytes.Cut(text, key)
	n, _ := number(rest)
	return n
}

// number parses digits. It also returns the text after the digits and one space.
func number(text []byte) (n int64, rest []byte) {
	for i, c := range text {
		if c < '0' || c > '9' {
			return n, text[i+1:]
		}
		n = 10*n + int64(c-'0')
	}
	return n, nil
}
