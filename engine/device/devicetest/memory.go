package devicetest

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
)

func runMemory(t conformance.T, open Opener, _ Caps) {
	for _, c := range []struct {
		name  string
		check func(conformance.T, device.Device)
	}{
		{"accounts for every byte", checkAccounting},
		{"gives what was asked for", checkBuffers},
		{"a second free is an error", checkSecondFree},
		{"too much is out of memory", checkOutOfMemory},
		{"any goroutine may allocate", checkParallelAlloc},
		{"info is complete", checkInfo},
	} {
		t.Run(c.name, func(t conformance.T) { c.check(t, opened(t, open, device.Options{})) })
	}
}

// allocators returns the allocation functions of both kinds of memory.
func allocators(dev device.Device) []func(int64) (device.Buffer, error) {
	return []func(int64) (device.Buffer, error){dev.Alloc, dev.AllocHost}
}

func checkAccounting(t conformance.T, dev device.Device) {
	const small, large = 1000, 1<<20 + 1
	wantMemory(t, dev, 0, 0)
	a, b := mustAlloc(t, dev.Alloc, small), mustAlloc(t, dev.Alloc, large)
	wantMemory(t, dev, small+large, small+large)
	mustFree(t, b)
	wantMemory(t, dev, small, small+large)
	host := mustAlloc(t, dev.AllocHost, 4096)
	wantMemory(t, dev, small, small+large)
	c := mustAlloc(t, dev.Alloc, 8)
	mustFree(t, a)
	mustFree(t, c)
	mustFree(t, host)
	wantMemory(t, dev, 0, small+large)
}

func checkBuffers(t conformance.T, dev device.Device) {
	for _, alloc := range allocators(dev) {
		for _, n := range []int64{1, 63, 64, 4097} {
			b := mustAlloc(t, alloc, n)
			if b.Bytes() != n {
				t.Errorf("alloc %d bytes: got a buffer of %d", n, b.Bytes())
			}
			if h := b.Host(); h != nil && (int64(len(h)) != n || uintptr(unsafe.Pointer(&h[0]))%64 != 0) {
				t.Errorf("alloc %d bytes: got %d host bytes at %p, want all of them, aligned to 64", n, len(h), &h[0])
			}
			mustFree(t, b)
		}
	}
	host := mustAlloc(t, dev.AllocHost, 16)
	if host.Host() == nil {
		t.Error("host memory is not visible to the host")
	}
	mustFree(t, host)
}

func checkSecondFree(t conformance.T, dev device.Device) {
	for _, alloc := range allocators(dev) {
		b := mustAlloc(t, alloc, 128)
		mustFree(t, b)
		if b.Free() == nil {
			t.Error("no error")
		}
	}
	wantMemory(t, dev, 0, 128)
}

func checkOutOfMemory(t conformance.T, dev device.Device) {
	for _, alloc := range allocators(dev) {
		for _, n := range []int64{1 << 60, 1<<63 - 1} {
			if _, err := alloc(n); !errors.Is(err, device.ErrOutOfMemory) {
				t.Errorf("alloc %d bytes: got %v, want out of memory", n, err)
			}
		}
		if _, err := alloc(-1); err == nil {
			t.Error("alloc -1 bytes: no error")
		}
	}
	wantMemory(t, dev, 0, 0)
}

func checkParallelAlloc(t conformance.T, dev device.Device) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 50 {
				b, err := dev.Alloc(int64(n + 1))
				if err == nil {
					err = b.Free()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func checkInfo(t conformance.T, dev device.Device) {
	info := dev.Info()
	if info.Name == "" || info.Kind == "" || info.Model == "" || info.MemoryBytes <= 0 {
		t.Errorf("got %+v, want name, kind, model and memory", info)
	}
}

func wantMemory(t conformance.T, dev device.Device, allocated, peak int64) {
	t.Helper()
	if a, p := dev.Memory(); a != allocated || p != peak {
		t.Errorf("memory: got %d bytes now, %d at most; want %d and %d", a, p, allocated, peak)
	}
}

func mustAlloc(t conformance.T, alloc func(int64) (device.Buffer, error), bytes int64) device.Buffer {
	t.Helper()
	b, err := alloc(bytes)
	if err != nil {
		t.Fatalf("alloc %d bytes: %v", bytes, err)
	}
	return b
}

func mustFree(t conformance.T, b device.Buffer) {
	t.Helper()
	if err := b.Free(); err != nil {
		t.Fatalf("free: %v", err)
	}
}
