package system

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// fakeThreads is a source whose values the test sets.
type fakeThreads struct {
	times map[int][2]time.Duration // by thread: time on a CPU, and time waiting for one
	lost  time.Duration
	err   error
}

func (f *fakeThreads) threads(each func(id int, ran, waited time.Duration)) error {
	for id, t := range f.times {
		each(id, t[0], t[1])
	}
	return f.err
}
func (f *fakeThreads) throttled() (time.Duration, error) { return f.lost, nil }
func (f *fakeThreads) Close() error                      { return nil }

func TestStolenTimeIsWhatOthersTook(t *testing.T) {
	const s = time.Second
	const ms = time.Millisecond
	cases := []struct {
		name    string
		quota   float64
		after   map[int][2]time.Duration // times one second later; before, each thread has 10 s and 1 s
		lost    time.Duration
		stolen  float64 // stolen time in percent
		stopped float64
	}{
		{"alone on its CPUs", 2, map[int][2]time.Duration{1: {11 * s, s}, 2: {11 * s, s}}, 0, 0, 0},
		{"half of each CPU is taken", 2,
			map[int][2]time.Duration{1: {10*s + 500*ms, s + 500*ms}, 2: {10*s + 500*ms, s + 500*ms}}, 0, 50, 0},
		{"too many threads of its own", 1,
			map[int][2]time.Duration{1: {10*s + 500*ms, s + 500*ms}, 2: {10*s + 500*ms, s + 500*ms}}, 0, 0, 0},
		{"stopped by its quota alone", 0.5, map[int][2]time.Duration{1: {10*s + 500*ms, s + 500*ms}}, 500 * ms, 0, 50},
		{"stopped most of the time by a quota that was lowered", 0.8,
			map[int][2]time.Duration{1: {10*s + 50*ms, s + 950*ms}}, 950 * ms, 0, 95},
		{"stopped together with other processes of its group", 1,
			map[int][2]time.Duration{1: {10*s + 750*ms, s + 250*ms}}, 900 * ms, 0, 25},
		{"asleep", 2, map[int][2]time.Duration{1: {10 * s, s}, 2: {10 * s, s}}, 0, 0, 0},
		{"a new thread", 2, map[int][2]time.Duration{1: {10 * s, s}, 2: {10 * s, s}, 3: {600 * ms, 200 * ms}}, 0, 25,
			0},
		{"a thread ended", 2, map[int][2]time.Duration{1: {10*s + 750*ms, s + 250*ms}}, 0, 25, 0},
		{"a number went to another thread", 2, map[int][2]time.Duration{1: {10*s + 750*ms, s + 250*ms}, 2: {ms, ms}}, 0,
			25, 0},
	}
	for _, c := range cases {
		now := time.Unix(1000, 0)
		source := &fakeThreads{times: map[int][2]time.Duration{1: {10 * s, s}, 2: {10 * s, s}}, lost: 9 * s}
		w := newWaitSampler(source, c.quota, func() time.Time { return now }, nil)
		if got := w.Sample(); !math.IsNaN(got.StolenPercent) || !math.IsNaN(got.QuotaPercent) {
			t.Errorf("%s: without any time: got %+v, want NaN", c.name, got)
		}
		now = now.Add(s)
		source.times = c.after
		source.lost += c.lost
		got := w.Sample()
		if math.Abs(got.StolenPercent-c.stolen) > 1e-9 || math.Abs(got.QuotaPercent-c.stopped) > 1e-9 {
			t.Errorf("%s: got %+v, want %v %% stolen, %v %% stopped by the quota", c.name, got, c.stolen, c.stopped)
		}
		if len(w.threads) != len(c.after) {
			t.Errorf("%s: remembers %d threads, want %d", c.name, len(w.threads), len(c.after))
		}
	}
}

func TestWaitsThatCannotBeReadAreNaN(t *testing.T) {
	source := &fakeThreads{err: errors.New("gone")}
	w := newWaitSampler(source, 1, time.Now, nil)
	if got := w.Sample(); !math.IsNaN(got.StolenPercent) || !math.IsNaN(got.QuotaPercent) || w.Err() == nil {
		t.Errorf("got %+v, %v", got, w.Err())
	}
}

// writeTree writes the files of a fake machine to a folder, and returns it.
func writeTree(t *testing.T, files machine) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestWaitsOfFakeMachines(t *testing.T) {
	threads := machine{"proc/self/task/7/schedstat": "2500000000 1250000000 99\n",
		"proc/self/task/8/schedstat": "1 0 2\n"}
	cases := []struct {
		name  string
		files machine
		want  time.Duration
	}{
		{"no quota", xeon(), 0},
		{
			"version 2",
			xeon().with(
				machine{
					"sys/fs/cgroup/user.slice/session-1.scope/cpu.stat": "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500\n",
					"sys/fs/cgroup/user.slice/cpu.stat":                 "usage_usec 5\nnr_periods 10\nnr_throttled 2\nthrottled_usec 9000\n"}),
			9 * time.Millisecond},
		{"version 1", xeon().with(machine{
			"proc/self/cgroup":                   "5:cpu,cpuacct:/\n",
			"proc/self/mountinfo":                "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 12\nnr_throttled 3\nthrottled_time 2000000\nnr_bursts 0\n",
		}), 2 * time.Millisecond},
	}
	for _, c := range cases {
		p := openWaits(writeTree(t, c.files.with(threads)), Limits{})
		times := map[int][2]time.Duration{}
		if err := p.threads(func(id int, ran, waited time.Duration) {
			times[id] = [2]time.Duration{ran, waited}
		}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(times) != 2 || times[7] != [2]time.Duration{2500 * time.Millisecond, 1250 * time.Millisecond} ||
			times[8] != [2]time.Duration{1, 0} {
			t.Errorf("%s: got %v", c.name, times)
		}
		if got, err := p.throttled(); got != c.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	p := openWaits(writeTree(t, xeon().with(machine{"proc/self/task/7/comm": "train\n"})), Limits{})
	if err := p.threads(func(int, time.Duration, time.Duration) {}); err == nil {
		t.Error("a kernel without schedstat: no error")
	}
}

func TestThisProcessWaits(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); runtime.GOOS != "linux" || err != nil {
		needtest.Missing(t, "system", "this kernel does not count the waits of threads")
	}
	w := NewWaitSampler(Limits{})
	defer w.Close()
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
	}
	if got := w.Sample(); w.Err() != nil || !(got.StolenPercent >= 0 && got.StolenPercent <= 100) {
		t.Errorf("got %+v, %v", got, w.Err())
	}
}
