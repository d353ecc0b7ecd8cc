package system

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cgroup"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// busyVariable is an environment variable that makes this test binary a rank with one busy thread. Its value is the
// folder of a control group that the rank joins, or "none".
const busyVariable = "HETERO_TEST_BUSY"

// figure is the report that a busy rank prints once a second.
type figure struct {
	Percent float64 // value of CPUPercent
	Used    float64 // CPU time / elapsed time, as the test measures it
}

func TestMain(m *testing.M) {
	if group := os.Getenv(busyVariable); group != "" {
		beBusy(group)
		return
	}
	os.Exit(m.Run())
}

// beBusy computes with one thread, and prints figures until its output is closed.
func beBusy(group string) {
	if group != "none" {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			panic(err)
		}
	}
	runtime.GOMAXPROCS(1)
	go func() {
		for {
		}
	}()
	s := NewSampler(Limits{Threads: 1})
	self, err := openSelf(Limits{})
	if err != nil {
		panic(err)
	}
	for {
		began := time.Now()
		cpu, _ := self.cpuTime()
		s.Sample()
		time.Sleep(time.Second)
		load := s.Sample()
		after, _ := self.cpuTime()
		text, _ := json.Marshal(figure{load.CPUPercent, (after - cpu).Seconds() / time.Since(began).Seconds()})
		if _, err := fmt.Println(string(text)); err != nil {
			return
		}
	}
}

// busyRanks starts one rank for each control group, all at the same time. It reads the figures of each rank until
// accept returns true.
func busyRanks(t *testing.T, groups []string, accept func(figure) bool, want string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		needtest.Missing(t, "system", "only Linux has /proc")
	}
	lines := make([]*bufio.Scanner, len(groups))
	for i, group := range groups {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), busyVariable+"="+group)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		lines[i] = bufio.NewScanner(out)
	}
	for i := range lines {
		var f figure
		for limit := time.Now().Add(time.Minute); ; {
			if !lines[i].Scan() {
				t.Fatalf("rank %d ended: %v", i, lines[i].Err())
			}
			if err := json.Unmarshal(lines[i].Bytes(), &f); err != nil {
				t.Fatalf("rank %d: got %q: %v", i, lines[i].Text(), err)
			}
			if accept(f) {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("rank %d: got %+v after a minute, want %s", i, f, want)
			}
		}
		t.Logf("rank %d: %+v", i, f)
	}
}

// A rank that keeps its only thread busy must have a utilization of 100 %, regardless of other CPUs and ranks.
// On a loaded machine, the thread gets only a part of a CPU, and the utilization is this part.
func TestABusyRankOfTwoUsesAllOfItsCPU(t *testing.T) {
	busyRanks(t, []string{"none", "none"}, func(f figure) bool {
		used := min(f.Used, 1)
		return used > 0.002 && math.Abs(f.Percent-100*used) < min(10, 20*used)
	}, "the used part of one CPU")
}

func TestABusyRankUsesAllOfItsQuota(t *testing.T) {
	const quota = 0.2
	var groups []string
	folders, v2 := cgroup.Read(os.DirFS("/")).Folders("cpu")
	if len(folders) == 0 {
		needtest.Missing(t, "cgroups", "this system has no control group of the CPU")
	}
	for i := range 2 {
		group := filepath.Join("/", folders[0], fmt.Sprintf("hetero-test-%d-%d", os.Getpid(), i))
		if err := os.Mkdir(group, 0o755); err != nil {
			needtest.Missing(t, "cgroups", err)
		}
		t.Cleanup(func() {
			for limit := time.Now().Add(time.Minute); os.Remove(group) != nil &&
				time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
			}
		})
		file, text, weight := cgroup.CPUMaxV2, "20000 100000", "cpu.weight"
		if !v2 {
			file, text, weight = cgroup.CPUQuotaV1, "20000", "cpu.shares" // in µs; the default period is 100 ms
		}
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			needtest.Missing(t, "cgroups", err)
		}
		// The weight protects the rank from other load if possible. It is 100 times the default in version 2, and 10
		// times in version 1.
		_ = os.WriteFile(filepath.Join(group, weight), []byte("10000"), 0)
		groups = append(groups, group)
	}
	busyRanks(t, groups, func(f figure) bool { return f.Used < 1.5*quota && f.Percent > 80 },
		"a quota of 0.2 CPUs and above 80 % of it")
}

// A rank in its own network namespace (scripts/lab.sh --link) sees the machine's sysfs. Its figures must still be those
// of its own interfaces.
func TestTrafficOfANetworkNamespace(t *testing.T) {
	if os.Getenv(spaceVariable) != "" {
		checkOwnTraffic(t)
		return
	}
	name := fmt.Sprintf("hetero-test-%d", os.Getpid())
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			needtest.Programs(t, "iproute2", "ip")
			needtest.Missing(t, "namespaces", fmt.Sprintf("ip %v: %v: %s", args, err, out))
		}
	}
	run("netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	run("-n", name, "link", "set", "lo", "up")
	run("-n", name, "link", "add", "lab0", "type", "veth", "peer", "name", "lab1")
	run("-n", name, "address", "add", "198.18.78.1/24", "dev", "lab0")
	run("-n", name, "link", "set", "lab0", "up")
	run("-n", name, "link", "set", "lab1", "up")
	run("-n", name, "neigh", "replace", "198.18.78.2", "lladdr", "02:00:00:00:00:02", "dev", "lab0")
	inside := exec.Command("nsenter", "--net=/run/netns/"+name, os.Args[0],
		"-test.run=^TestTrafficOfANetworkNamespace$", "-test.v")
	inside.Env = append(os.Environ(), spaceVariable+"=yes")
	out, err := inside.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// spaceVariable is set in the process that runs the test in the network namespace.
const spaceVariable = "HETERO_TEST_SPACE"

// awaitCarrier waits until the kernel has detected the carrier of a new interface.
func awaitCarrier(t *testing.T, name string) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		link, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if link.Flags&net.FlagRunning != 0 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s has no carrier: its flags are %v", name, link.Flags)
		}
	}
}

func checkOwnTraffic(t *testing.T) {
	t.Helper()
	awaitCarrier(t, "lab0")
	awaitCarrier(t, "lab1")
	s, names := NewLinkSampler(), map[string]int{}
	for i, l := range s.Links() {
		names[l.Name] = i
	}
	if _, found := names["lab0"]; !found || len(names) != 3 || len(s.Links()) != 3 {
		t.Fatalf("got the links %+v, want lab0, lab1 and lo", s.Links())
	}
	got := make([]telemetry.Traffic, len(names))
	s.Sample(got)
	send(t, "198.18.78.2:9", 1_000_000)
	counted(s, got, func() bool { return got[names["lab0"]].SentBytes >= 1_000_000 })
	if sent := got[names["lab0"]]; !(sent.SentBytes >= 1_000_000 && sent.SentBytes < 1_200_000) || !(sent.Sent > 0) {
		t.Errorf("sent 1 MB: got %+v, want this and the headers", sent)
	}
	host, err := Detect()
	if err != nil || len(host.Networks) != 2 {
		t.Errorf("got the networks %+v, %v, want lab0 and lab1", host.Networks, err)
	}
}
