package cpu

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// The checks are valid under any load of the machine. The idle time must be at least the owed idle time, minus a
// remainder of less than a millisecond.
func TestASlowedDeviceIdlesAfterItsLaunches(t *testing.T) {
	const rest = time.Millisecond
	dev := open(t, device.Options{Threads: 1})
	defer dev.Close()
	b := newRig(t, dev)
	defer b.close(t)
	s := dev.(device.Slowable)
	elapsed := make([]time.Duration, 2)
	work := func(atLeast time.Duration) (worked, idle time.Duration) {
		t.Helper()
		before := s.Slowdown()
		for worked < atLeast {
			if err := b.stream.RunTimed(b.program, elapsed); err != nil {
				t.Fatal(err)
			}
			now := s.Slowdown()
			worked, idle = now.Worked-before.Worked, now.Idle-before.Idle
		}
		return worked, idle
	}
	for _, factor := range []float64{3, 1.5} {
		// The larger factor comes first. The idle time that remains owed after it is small compared with that of the
		// second factor.
		if err := s.SetSlowdown(factor); err != nil {
			t.Fatal(err)
		}
		clear(elapsed)
		// If earlier sleeps were too long, the device reduces later idle times, by at most this credit.
		credit := 20 * time.Millisecond
		if factor == 3 {
			credit = 0
		}
		worked, idle := work(50 * time.Millisecond)
		owed := time.Duration((factor - 1) * float64(worked))
		if idle < owed-rest-credit {
			t.Errorf("factor %v: worked %v and idled %v, want at least %v", factor, worked, idle, owed-rest)
		}
		if elapsed[0] < worked+idle-rest || elapsed[1] > elapsed[0] {
			t.Errorf("factor %v: got times %v for a launch and a recording, want the launch's to include %v of work and %v idle",
				factor, elapsed, worked, idle)
		}
	}
	if err := s.SetSlowdown(1); err != nil {
		t.Fatal(err)
	}
	before := s.Slowdown()
	for range 100 {
		if err := b.stream.Run(b.program); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Slowdown(); got != before || got.Factor != 1 {
		t.Errorf("factor 1: got %+v after 100 runs, %+v before", got, before)
	}
}

func TestASlowedDeviceSaysSo(t *testing.T) {
	dev := open(t, device.Options{Threads: 1})
	defer dev.Close()
	s, plain := dev.(device.Slowable), dev.Info()
	if err := s.SetSlowdown(2); err != nil {
		t.Fatal(err)
	}
	slowed := dev.Info()
	if want := plain.Model + ", simulated slowdown x2"; slowed.Model != want || s.Slowdown().Factor != 2 {
		t.Errorf("got %q at factor %v, want %q", slowed.Model, s.Slowdown().Factor, want)
	}
	for _, wrong := range []float64{0.5, 0, -1, 1001, math.NaN(), math.Inf(1)} {
		if err := s.SetSlowdown(wrong); err == nil || !strings.Contains(err.Error(), "want 1 to 1000") {
			t.Errorf("factor %v: got error %v", wrong, err)
		}
	}
	if dev.Info() != slowed {
		t.Errorf("a refused factor changed %+v to %+v", slowed, dev.Info())
	}
	if err := s.SetSlowdown(1); err != nil || dev.Info() != plain {
		t.Errorf("factor 1: got %+v, %v", dev.Info(), err)
	}
}

func TestAClosedDeviceIsNotSlowedDown(t *testing.T) {
	dev := open(t, device.Options{Threads: 1})
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	s := dev.(device.Slowable)
	if err := s.SetSlowdown(2); err == nil || s.Slowdown() != (device.Slowdown{Factor: 1}) {
		t.Errorf("got %v and %+v", err, s.Slowdown())
	}
}
