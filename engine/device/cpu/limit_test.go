//go:build linux

package cpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// inLimited is set in the child process of TestTooFewAddressesAreRefused.
const inLimited = "HETERO_TEST_LIMITED"

// oneDNN does not check whether it gets memory for generated code, and Go's runtime ends the process without memory.
// The library therefore refuses to take the last addresses that a limit permits. The limit is that of a child process.
func TestTooFewAddressesAreRefused(t *testing.T) {
	if os.Getenv(inLimited) == "" {
		dev := open(t, device.Options{}) // skips without the library
		dev.Close()
		child := exec.Command(os.Args[0], "-test.run=^TestTooFewAddressesAreRefused$", "-test.v")
		child.Env = append(os.Environ(), inLimited+"=1")
		if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "refused 3 calls") {
			t.Errorf("got %v\n%s", err, out)
		}
		return
	}
	dev := open(t, device.Options{Threads: 1})
	compile := func(channels int) error {
		conv := smallConv{4, channels, 17, 17, 32, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, false}.op()
		in := []device.TensorSpec{device.Spec(tensor.F32, 4, channels, 17, 17),
			device.Spec(tensor.F32, 32, channels, 3, 3)}
		out, err := conv.Infer(in)
		if err != nil {
			t.Fatal(err)
		}
		k, err := dev.Compile(conv, in, out)
		if err != nil {
			return err
		}
		return k.Close()
	}
	alloc := func(bytes int64) error {
		b, err := dev.Alloc(bytes)
		if err != nil {
			return err
		}
		return b.Free()
	}
	calls := []func() error{func() error { return compile(16) }, func() error { return alloc(4 << 20) },
		func() error { return alloc(64 << 20) }}
	for i, call := range calls {
		if err := call(); err != nil {
			t.Fatalf("call %d without a limit: %v", i, err)
		}
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(rlimitData, &before); err != nil {
		t.Fatal(err)
	}
	held := dataOf(t)
	limit := before
	limit.Cur = uint64(held) + 10<<20 // enough for each call except the last, but not for the headroom, too
	if err := syscall.Setrlimit(rlimitData, &limit); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i, call := range calls {
		err := call()
		if errors.Is(err, device.ErrOutOfMemory) && strings.Contains(err.Error(), "RLIMIT_DATA permits ") &&
			strings.Contains(err.Error(), "ulimit -d") {
			refused++
		} else {
			t.Errorf("call %d with 10 MiB left: got %v", i, err)
		}
	}
	if err := syscall.Setrlimit(rlimitData, &before); err != nil {
		t.Fatal(err)
	}
	for i, call := range calls {
		if err := call(); err != nil {
			t.Errorf("call %d after the limit: %v", i, err)
		}
	}
	t.Logf("refused %d calls", refused)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// rlimitData is RLIMIT_DATA, which package syscall lacks on some architectures.
const rlimitData = 2

// dataOf returns the bytes that count against RLIMIT_DATA.
func dataOf(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	if i := strings.Index(string(text), "VmData:"); i < 0 {
		t.Fatal("/proc/self/status has no VmData")
	} else if _, err := fmt.Sscanf(string(text[i:]), "VmData: %d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
