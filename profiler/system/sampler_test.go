package system

import (
	"errors"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// fakeProcess is a source whose values the test sets.
type fakeProcess struct {
	cpu   time.Duration
	bytes int64
	cpus  float64 // CPU quota; 0: no quota
	err   error
	asked int
}

func (f *fakeProcess) cpuTime() (time.Duration, error) {
	f.asked++
	return f.cpu, f.err
}
func (f *fakeProcess) resident() (int64, error) { return f.bytes, f.err }
func (f *fakeProcess) Close() error             { return nil }
func (f *fakeProcess) quota() float64 {
	if f.cpus == 0 {
		return math.Inf(1)
	}
	return f.cpus
}

func TestLoadIsAShareOfWhatTheProcessMayUse(t *testing.T) {
	cases := []struct {
		name    string
		quota   float64
		limits  Limits
		used    time.Duration // CPU time used in one second
		percent float64
	}{
		{"idle", 2, Limits{}, 0, 0},
		{"one of two CPUs", 2, Limits{}, time.Second, 50},
		{"all of a fractional quota", 0.4, Limits{}, 400 * time.Millisecond, 100},
		{"a burst above the quota", 0.5, Limits{}, time.Second, 100},
		{"one thread of a rank among eight CPUs", 0, Limits{Threads: 1}, time.Second, 100},
		{"one of two threads", 0, Limits{Threads: 2}, time.Second, 50},
		{"four ranks divide a quota of two", 2, Limits{Threads: 1, Processes: 4}, 500 * time.Millisecond, 100},
		{"a quota below the threads", 0.5, Limits{Threads: 2}, 250 * time.Millisecond, 50},
	}
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			process := &fakeProcess{cpu: time.Hour, bytes: 256 << 20, cpus: c.quota}
			s := newSampler(process, Host{CPU: CPU{Usable: 8}, Memory: Memory{Limit: gib}}, c.limits, nil)
			if got := s.Sample(); !math.IsNaN(got.CPUPercent) {
				t.Errorf("%s: before any time has passed: got %+v, want NaN", c.name, got)
			}
			for range 3 {
				time.Sleep(time.Second)
				process.cpu += c.used
				if got := s.Sample(); math.Abs(got.CPUPercent-c.percent) > 1e-9 || got.MemoryPercent != 25 ||
					got.ResidentBytes != 256<<20 {
					t.Errorf("%s: got %+v, want %v percent of the CPU and 25 of the memory", c.name, got, c.percent)
				}
			}
		})
	}
}

func TestMemoryIsRelativeToTheSmallestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for limit, want := range map[int64]float64{0: 25, gib / 2: 50, 2 * gib: 25, 128 << 20: 100} {
			s := newSampler(&fakeProcess{bytes: 256 << 20}, Host{CPU: CPU{Usable: 1}, Memory: Memory{Limit: gib}},
				Limits{MemoryBytes: limit}, nil)
			time.Sleep(time.Second)
			if got := s.Sample(); got.MemoryPercent != want {
				t.Errorf("256 MiB with a part of %d bytes of 1 GiB: got %v %%, want %v", limit, got.MemoryPercent, want)
			}
		}
	})
}

func TestAQuotaThatChangesCountsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		process := &fakeProcess{cpus: 1}
		s := newSampler(process, Host{CPU: CPU{Usable: 2}, Memory: Memory{Limit: gib}}, Limits{}, nil)
		for _, c := range []struct{ quota, percent float64 }{{1, 20}, {0.2, 100}, {0.4, 50}} {
			process.cpus = c.quota
			process.cpu += 200 * time.Millisecond
			time.Sleep(time.Second)
			if got := s.Sample(); math.Abs(got.CPUPercent-c.percent) > 1e-9 {
				t.Errorf("0.2 CPUs with a quota of %v: got %v %%, want %v", c.quota, got.CPUPercent, c.percent)
			}
		}
	})
}

func TestSamplingIsBoundedToTwiceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		process := &fakeProcess{}
		s := newSampler(process, Host{CPU: CPU{Usable: 1}, Memory: Memory{Limit: gib}}, Limits{}, nil)
		for range 10_000 { // 10 s, in steps of one millisecond
			time.Sleep(time.Millisecond)
			s.Sample()
		}
		if process.asked < 20 || process.asked > 22 {
			t.Errorf("measured %d times in 10 s, want 20 to 22", process.asked)
		}
	})
}

func TestWhatCannotBeMeasuredIsNaN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := errors.New("gone")
		s := newSampler(&fakeProcess{}, Host{}, Limits{}, fault)
		time.Sleep(time.Second)
		if got := s.Sample(); !math.IsNaN(got.CPUPercent) || !math.IsNaN(got.MemoryPercent) || s.Err() != fault {
			t.Errorf("never measured: got %+v, %v", got, s.Err())
		}
		process := &fakeProcess{bytes: 1}
		s = newSampler(process, Host{CPU: CPU{Usable: 1}, Memory: Memory{Limit: gib}}, Limits{}, nil)
		time.Sleep(time.Second)
		if got := s.Sample(); math.IsNaN(got.CPUPercent) {
			t.Fatalf("got %+v", got)
		}
		process.err = fault
		time.Sleep(time.Second)
		if got := s.Sample(); !math.IsNaN(got.CPUPercent) || !math.IsNaN(got.MemoryPercent) || s.Err() != fault {
			t.Errorf("measured no longer: got %+v, %v", got, s.Err())
		}
	})
}

func TestThisProcessIsMeasured(t *testing.T) {
	if runtime.GOOS != "linux" {
		needtest.Missing(t, "system", "only Linux has /proc")
	}
	s := NewSampler(Limits{})
	defer s.Close()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	before, err := s.source.cpuTime()
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; { // a busy machine may give this process no CPU for some time, so the test tries again
		now, err := s.source.cpuTime()
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > 100*time.Millisecond && now-before > 20*time.Millisecond {
			break
		}
	}
	got := s.Sample()
	if s.Err() != nil || !(got.CPUPercent > 0) || got.CPUPercent > 100 || !(got.MemoryPercent > 0) ||
		got.MemoryPercent > 100 || got.ResidentBytes < 1<<20 {
		t.Errorf("a busy process: got %+v, %v", got, s.Err())
	}
	measure := func() {
		s.sampled = s.sampled.Add(-time.Second)
		s.Sample()
	}
	if allocations := testing.AllocsPerRun(100, measure); allocations != 0 {
		t.Errorf("got %v allocations a sample, want 0", allocations)
	}
}

func TestResidentPagesOfStatm(t *testing.T) {
	for text, want := range map[string]int64{"765 441 413 5 0 123 0\n": 441, "1 0 0\n": 0} {
		if got, err := secondField([]byte(text)); got != want || err != nil {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "765", "765 ", "a b c"} {
		if got, err := secondField([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}
