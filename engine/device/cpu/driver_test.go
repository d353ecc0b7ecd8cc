//go:build linux

package cpu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

func TestMissingLibraryIsUnavailable(t *testing.T) {
	if err := nativelib.Loadable(); err != nil {
		needtest.Missing(t, "cpu", err)
	}
	for _, c := range []struct {
		name    string
		content string // content of the library file; "": there is no file
		want    []string
	}{
		{"no file", "", []string{"no libhetero_cpu.so in ", "correct or unset " + nativelib.DirVariable}},
		{"no library", "not an ELF file", []string{"libhetero_cpu.so", "invalid ELF header"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(nativelib.DirVariable, dir)
			if c.content != "" {
				// the padding prevents the error "file too short"
				content := []byte(c.content + strings.Repeat("\n", 4096))
				if err := os.WriteFile(filepath.Join(dir, libraryName), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Driver{}.Open(0, device.Options{})
			if !errors.Is(err, device.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable", err)
			}
			for _, part := range append(c.want, dir) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to say %q", err, part)
				}
			}
		})
	}
}

func TestAnUnknownInstructionSetIsUnavailable(t *testing.T) {
	t.Setenv(isaLimit, "avx1024")
	_, err := Driver{}.Open(0, device.Options{})
	if !errors.Is(err, device.ErrUnavailable) ||
		!strings.Contains(err.Error(),
			`environment variable HETERO_CPU_ISA: got "avx1024", want avx512_bf16, avx512, avx2, generic or amx`) {
		t.Errorf("got %v, want ErrUnavailable that names the variable and its values", err)
	}
}

func TestWaitPolicyOfTheUserWins(t *testing.T) {
	for _, c := range []struct {
		name, policy, spin string
		want               []native.Setting
	}{
		{"nothing set", "", "", []native.Setting{{Name: "GOMP_SPINCOUNT", Value: spinCount}}},
		{"a policy", "active", "", nil},
		{"a count", "", "5", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("OMP_WAIT_POLICY", c.policy)
			t.Setenv("GOMP_SPINCOUNT", c.spin)
			if got := settings(); len(got) != len(c.want) || (len(got) == 1 && got[0] != c.want[0]) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestWrongIndexAndThreads(t *testing.T) {
	open(t, device.Options{}).Close()
	if _, err := (Driver{}).Open(1, device.Options{}); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("index 1: got %v, want ErrUnavailable", err)
	}
	for _, c := range []struct {
		index   int
		threads int
	}{{-1, 0}, {1 << 40, 0}, {0, -1}, {0, 1 << 40}} {
		if _, err := (Driver{}).Open(c.index, device.Options{Threads: c.threads}); err == nil {
			t.Errorf("index %d, %d threads: got no error", c.index, c.threads)
		}
	}
}

func TestThreadsAreAsAsked(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		dev := open(t, device.Options{Threads: n})
		if got := dev.Info().Threads; got != n {
			t.Errorf("got %d threads, want %d", got, n)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// OpenMP may be configured to bind threads. It then pins the thread that loads it, from which Go may start other
// threads. The check runs in a child process, because OpenMP reads its environment only once.
func TestOpeningLeavesThreadsUnpinned(t *testing.T) {
	if os.Getenv("HETERO_TEST_AFFINITY") == "" {
		open(t, device.Options{}).Close() // skips the test if the library is missing
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpeningLeavesThreadsUnpinned$", "-test.v")
		cmd.Env = append(os.Environ(), "HETERO_TEST_AFFINITY=1", "OMP_PROC_BIND=true")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := affinity(t)
	dev := open(t, device.Options{Threads: 2})
	defer dev.Close()
	if got := affinity(t); got != before {
		t.Errorf("after loading: got affinity %v, want %v", got, before)
	}
	done := make(chan unix.CPUSet)
	go func() { // another thread, because OpenMP treats the thread that loaded it differently
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		reorderOnce(t, dev)
		done <- affinity(t)
	}()
	if got := <-done; got != before {
		t.Errorf("after a run: got affinity %v, want %v", got, before)
	}
}

func affinity(t *testing.T) unix.CPUSet {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// The library's threads must block signals. Otherwise, a signal handler of Go would run on a stack that Go does not
// expect.
func TestWorkersTakeNoSignals(t *testing.T) {
	dev := open(t, device.Options{Threads: 2})
	defer dev.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	reorderOnce(t, dev)
	blocking := 0
	statuses, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	blocked := func(path string) uint64 {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0 // the thread has ended
		}
		_, mask, _ := strings.Cut(string(text), "SigBlk:\t")
		set, err := strconv.ParseUint(mask[:16], 16, 64)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return set
	}
	has := func(set uint64, s unix.Signal) bool { return set>>(s-1)&1 != 0 }
	for _, path := range statuses {
		set := blocked(path)
		// While a thread is being created, this thread and its creator block all signals for a short time.
		for deadline := time.Now().Add(time.Minute); has(set, unix.SIGSEGV) ||
			has(set, unix.SIGBUS); set = blocked(path) {
			if time.Now().After(deadline) {
				t.Errorf("%s: faults are blocked too: %#x", path, set)
				break
			}
			time.Sleep(time.Millisecond)
		}
		if has(set, unix.SIGTERM) && has(set, unix.SIGINT) && has(set, unix.SIGPROF) {
			blocking++
		}
	}
	if blocking == 0 {
		t.Error("no thread blocks signals, want the team's second one to")
	}
	var own unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &own); err != nil {
		t.Fatal(err)
	}
	if own.Val[0]>>(unix.SIGTERM-1)&1 != 0 {
		t.Error("the calling thread blocks SIGTERM as well")
	}
}
