package lab

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/weather"
)

// neighbourArgument makes the test binary run as a noisy neighbour.
const neighbourArgument = "be-a-neighbour"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == neighbourArgument {
		if err := Burn(os.Stdin); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// slowable is a device whose only ability is a slowdown.
type slowable struct {
	device.Device
	factor float64
	fail   error
}

func (s *slowable) Info() device.Info         { return device.Info{Name: "fake:0"} }
func (s *slowable) Slowdown() device.Slowdown { return device.Slowdown{Factor: s.factor} }
func (s *slowable) SetSlowdown(f float64) error {
	if s.fail == nil {
		s.factor = f
	}
	return s.fail
}

// plain is a device without support for a slowdown.
type plain struct{ device.Device }

func (plain) Info() device.Info { return device.Info{Name: "plain"} }

// group creates the folder of a control group with the given files.
func group(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = strings.TrimSpace(string(text))
	}
	return all
}

func storm(t *testing.T, lines string) *weather.Weather {
	t.Helper()
	w, err := weather.Parse("test", []byte("weather v1\n"+lines))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func noWarning(t *testing.T) func(error) {
	return func(err error) { t.Errorf("unexpected warning: %v", err) }
}

func TestAQuotaFollowsTheWeather(t *testing.T) {
	for _, c := range []struct {
		name                string
		files, half, hardly map[string]string
	}{
		{"version 2", map[string]string{"cpu.max": "4000 10000\n"}, map[string]string{"cpu.max": "2000 10000"},
			map[string]string{"cpu.max": "1000 250000"}},
		{"version 1", map[string]string{"cpu.cfs_quota_us": "4000\n", "cpu.cfs_period_us": "10000\n"},
			map[string]string{"cpu.cfs_quota_us": "2000", "cpu.cfs_period_us": "10000"},
			map[string]string{"cpu.cfs_quota_us": "1000", "cpu.cfs_period_us": "250000"}},
		{"another period", map[string]string{"cpu.max": "40000 100000"}, map[string]string{"cpu.max": "2000 10000"},
			map[string]string{"cpu.max": "1000 250000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := group(t, c.files)
			before := read(t, dir)
			dev := &slowable{factor: 1}
			a := Open(Options{Setup: Setup{Group: dir, CPUs: 0.4, Slowdown: 1},
				Weather: storm(t, "from 2 to 3 rank 1 speed 0.5\nfrom 4 to 4 all speed 0.01"), Rank: 1, Device: dev,
				Warn: noWarning(t)})
			if m := a.Means().Speed; m.Kind != Real || !strings.Contains(m.How, "0.4 CPUs") || len(a.Missing()) > 0 {
				t.Errorf("got means %v, missing %v", m, a.Missing())
			}
			for i, want := range []map[string]string{before, c.half, c.half, c.hardly} {
				a.Before(int64(i + 1))
				if got := read(t, dir); !equal(got, want) {
					t.Errorf("step %d: got %v, want %v", i+1, got, want)
				}
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if got := read(t, dir); !equal(got, before) || dev.factor != 1 {
				t.Errorf("after the run: got %v and slowdown %v, want %v", got, dev.factor, before)
			}
		})
	}
}

func equal(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

func TestAGroupThatIsOfNoUseLeavesTheDevice(t *testing.T) {
	file := filepath.Join(group(t, map[string]string{"file": ""}), "file")
	for _, c := range []struct{ name, group, why string }{
		{"no group", "", "no control group of its own"},
		{"no such folder", "/nowhere/at/all", "no such file"},
		{"a file", file, "not a directory"},
		{"no limit, version 2", group(t, map[string]string{"cpu.max": "max 100000"}),
			`got a CPU quota of "max" in "100000" µs`},
		{"no limit, version 1", group(t, map[string]string{"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}),
			`got a CPU quota of "-1"`},
		{"half a group", group(t, map[string]string{"cpu.cfs_quota_us": "1000"}), "cpu.cfs_period_us"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := &slowable{}
			a := Open(Options{Setup: Setup{Group: c.group, Slowdown: 2},
				Weather: storm(t, "from 2 to 3 all speed 0.25"), Device: dev, Warn: noWarning(t)})
			if m := a.Means().Speed; m.Kind != Simulated || !strings.Contains(m.How, c.why) {
				t.Errorf("got means %v, want simulated because of %s", m, c.why)
			}
			for i, want := range []float64{2, 8, 8, 2} {
				if a.Before(int64(i + 1)); dev.factor != want {
					t.Errorf("step %d: got slowdown %v, want %v", i+1, dev.factor, want)
				}
			}
			a.Before(2)
			if err := a.Close(); err != nil || dev.factor != 2 {
				t.Errorf("after the run: got slowdown %v, %v, want 2", dev.factor, err)
			}
		})
	}
}

func TestWhatHasNoEffectIsNamed(t *testing.T) {
	w := storm(t, "rank 0 speed 0.5\nrank 1 link 1 mbit\nrank 2 speed 1\nrank 2 neighbour 1")
	for _, c := range []struct {
		rank int
		dev  device.Device
		want string // expected text; "": nothing is missing
	}{
		{0, plain{}, "scenario: rank 0: speed has no effect on this machine: it has no control group of its own, and device plain cannot be slowed down"},
		{0, &slowable{fail: device.ErrUnsupported}, "not supported"},
		{0, &slowable{}, ""},
		{1, plain{},
			"scenario: rank 1: link has no effect on this machine: the rank has no network interface of its own"},
		{2, plain{}, ""},
		{3, plain{}, ""},
	} {
		a := Open(Options{Setup: Setup{Slowdown: 1}, Weather: w, Rank: c.rank, Device: c.dev, Warn: noWarning(t)})
		got := errors.Join(a.Missing()...)
		if (got == nil) != (c.want == "") || got != nil && !strings.Contains(got.Error(), c.want) {
			t.Errorf("rank %d: got %v, want %q", c.rank, got, c.want)
		}
		if c.want != "" {
			a.Before(1) // has no effect, and must not repeat the warning
		}
	}
}

func TestALinkFollowsTheWeather(t *testing.T) {
	const add = "tc qdisc replace dev eth7 root tbf rate "
	for _, c := range []struct {
		name, base string
		want       []string
	}{
		{
			"no limit of its own", "", []string{add + "100000000000bit burst 125000000 latency 100ms",
				"tc qdisc del dev eth7 root", "step 2", add + "10000000bit burst 32768 latency 100ms", "step 4",
				"tc qdisc del dev eth7 root", "close"}},
		{"a limit of its own", "1gbit", []string{add + "1gbit burst 1250000 latency 100ms", "step 2", add +
			"10000000bit burst 32768 latency 100ms", "step 4", add + "1gbit burst 1250000 latency 100ms", "close"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var did []string
			run := func(command ...string) error { did = append(did, strings.Join(command, " ")); return nil }
			a := Open(Options{Setup: Setup{Interface: "eth7", Link: c.base, Slowdown: 1},
				Weather: storm(t, "from 2 to 3 rank 0 link 10 mbit"), Device: plain{}, Warn: noWarning(t),
				runCommand: run})
			if m := a.Means().Link; m.Kind != Real {
				t.Errorf("got means %v", m)
			}
			for step := int64(1); step < 5; step++ {
				if n := len(did); true {
					a.Before(step)
					if len(did) > n {
						did = slices.Insert(did, n,
							map[int64]string{1: "step 1", 2: "step 2", 3: "step 3", 4: "step 4"}[step])
					}
				}
			}
			did = append(did, "close")
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(did, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(did, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestALinkThatMayNotBeLimitedHasNoEffect(t *testing.T) {
	calls := 0
	run := func(...string) error { calls++; return errors.New("operation not permitted") }
	a := Open(Options{Setup: Setup{Interface: "eth7", Slowdown: 1}, Weather: storm(t, "all link 10 mbit"),
		Device: plain{}, Warn: noWarning(t), runCommand: run})
	if m := a.Means().Link; m.Kind != NoEffect || !strings.Contains(m.How, "not permitted") || len(a.Missing()) != 1 {
		t.Errorf("got means %v, missing %v", m, a.Missing())
	}
	if a.Before(1); calls != 1 || a.Close() != nil {
		t.Errorf("got %d calls, want the one at the start", calls)
	}
	Open(Options{Setup: Setup{Interface: "eth7", Slowdown: 1}, Weather: storm(t, "all speed 0.5"), Device: plain{},
		runCommand: run})
	if calls != 1 {
		t.Error("weather without links touched the network")
	}
}

func TestNeighboursComeAndGo(t *testing.T) {
	a := Open(
		Options{
			Setup:   Setup{Slowdown: 1},
			Weather: storm(t, "from 2 to 4 all neighbour 1\nfrom 3 to 3 all neighbour 1\nfrom 6 all neighbour 1"),
			Device:  plain{}, Warn: noWarning(t),
			Neighbour: []string{os.Args[0], neighbourArgument}})
	var all []*Neighbour
	for i, want := range []int{0, 1, 2, 1, 0, 1} {
		a.Before(int64(i + 1))
		if len(a.neighbours) != want {
			t.Errorf("step %d: got %d neighbours, want %d", i+1, len(a.neighbours), want)
		}
		for _, n := range a.neighbours {
			if ended, err := n.Ended(); ended {
				t.Errorf("step %d: a neighbour ended: %v", i+1, err)
			}
		}
		all = append(all, a.neighbours...)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for i, n := range all {
		if ended, _ := n.Ended(); !ended {
			t.Errorf("neighbour %d is still there", i)
		}
	}
}

func TestANeighbourEndsWithWhoStartedIt(t *testing.T) {
	n, err := StartNeighbour([]string{os.Args[0], neighbourArgument})
	if err != nil {
		t.Fatal(err)
	}
	n.alive.Close() // if this process ended, the effect would be the same
	if <-n.ended; n.err != nil {
		t.Errorf("got %v, want an end in order", n.err)
	}
}

func TestNeighboursThatFailAreToldOnce(t *testing.T) {
	var told []string
	warn := func(err error) { told = append(told, err.Error()) }
	o := Options{Setup: Setup{Slowdown: 1}, Weather: storm(t, "from 2 all neighbour 1"), Device: plain{}, Rank: 3,
		Warn: warn, Neighbour: []string{"/nowhere/at/all"}}
	a := Open(o)
	for step := range int64(4) {
		a.Before(step)
	}
	if len(told) != 1 || !strings.Contains(told[0], "rank 3, step 2: neighbour:") {
		t.Errorf("a program that is not there: got %q", told)
	}
	told, o.Neighbour = nil, []string{"/bin/false"}
	a = Open(o)
	a.Before(2)
	<-a.neighbours[0].ended
	for step := int64(3); step < 6; step++ {
		a.Before(step)
	}
	if len(told) != 1 || !strings.Contains(told[0], "ended unexpectedly: exit status 1") {
		t.Errorf("a program that ends: got %q", told)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFailingQuotaIsToldAndTrainingGoesOn(t *testing.T) {
	dir := group(t, map[string]string{"cpu.max": "4000 10000"})
	var told []string
	a := Open(Options{Setup: Setup{Group: dir, Slowdown: 1}, Weather: storm(t, "from 2 all speed 0.5"), Device: plain{},
		Warn: func(err error) { told = append(told, err.Error()) }})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for step := range int64(4) {
		a.Before(step)
	}
	if len(told) != 1 || !strings.Contains(told[0], "step 2: control group") {
		t.Errorf("got %q, want one warning", told)
	}
	if err := a.Close(); err == nil {
		t.Error("closing: got no error for a group that is gone")
	}
}

func TestBurningEndsWithItsInput(t *testing.T) {
	r, w := io.Pipe()
	go w.Close()
	if err := Burn(r); err != nil {
		t.Error(err)
	}
	if err := Burn(strings.NewReader("")); err != nil {
		t.Error(err)
	}
}

func TestThePlaceIsReadFromTheEnvironment(t *testing.T) {
	env := map[string]string{}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	if p, err := Find(lookup); err != nil || p != (Setup{Slowdown: 1}) {
		t.Errorf("outside the lab: got %+v, %v", p, err)
	}
	env = map[string]string{GroupVariable: "/g", CPUsVariable: "0.2", SlowdownVariable: "5", InterfaceVariable: "eth0",
		LinkVariable: "1.5gbit"}
	if p, err := Find(lookup); err != nil || p != (Setup{"/g", 0.2, 5, "eth0", "1.5gbit"}) {
		t.Errorf("inside: got %+v, %v", p, err)
	}
	for _, c := range []struct{ name, value, want string }{
		{CPUsVariable, "0", "a number of CPUs above 0"}, {CPUsVariable, "two", `got "two"`},
		{CPUsVariable, "NaN", "a number"},
		{SlowdownVariable, "0.5", "a factor from 1 to 1000"}, {SlowdownVariable, "1001", "a factor"},
		{SlowdownVariable, "x2", `got "x2"`},
		{LinkVariable, "1gbit; reboot", "a rate in the format of tc"},
		{LinkVariable, "1gbit", "but HETERO_LAB_INTERFACE is not set"},
	} {
		env = map[string]string{c.name: c.value}
		if _, err := Find(lookup); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), c.name) {
			t.Errorf("%s=%s: got error %v, want %s", c.name, c.value, err, c.want)
		}
	}
}

func TestConditionsAreDescribedWithWhatTheyAreWorth(t *testing.T) {
	m := Means{Speed: Mean{Simulated, "x"}, Neighbour: Mean{Real, "x"}, Link: Mean{NoEffect, "x"}}
	for want, lines := range map[string]string{
		"as usual":              "",
		"speed 0.5 (simulated)": "all speed 0.5",
		"speed 0.5 with jitter (simulated), 2 neighbours (real)": "all speed 0.5 jitter 0.1\nall neighbour 2",
		"1 neighbour (real), link 10 Mbit/s (no effect)":         "all link 10 mbit\nall neighbour 1",
	} {
		if got := m.Describe(storm(t, lines).At(1, 0)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
