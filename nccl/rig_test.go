//go:build cgo && linux

package nccl

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/collective/staged"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// shimLibrary contains the sources of src/, compiled for the host.
const shimLibrary = "libhetero_nccl_shim.so"

// shim opens the GPU device that was compiled for the host. The fake NCCL moves data in the memory of this device.
func shim(t *testing.T) *native.Library {
	t.Helper()
	dir := nativetest.Need(t, "cpu", shimLibrary)
	t.Setenv("HETERO_CUDA_LIBS", dir)
	t.Setenv("HETERO_SHIM_GPUS", "16")
	return nativetest.Load(t, "cpu", nativetest.CUDAShim)
}

// ranks are the ranks of one group, with their devices and control communicators.
type ranks struct {
	devs   []device.Device
	inner  []*local.Communicator
	config []Config
}

// prepare opens a GPU for each rank. The devices remain open, because tests do not free their memory.
func prepare(t conformance.TB, lib *native.Library, size int, limit time.Duration) *ranks {
	t.Helper()
	inner, err := local.New(size, local.Options{Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	r := &ranks{inner: inner}
	for rank := range size {
		dev, err := lib.Open(rank, device.Options{})
		if err != nil {
			t.Fatal(err)
		}
		control, err := staged.New(inner[rank], dev)
		if err != nil {
			t.Fatal(err)
		}
		r.devs = append(r.devs, dev)
		r.config = append(r.config, Config{Control: control, Device: dev, Timeout: limit, Host: "here",
			library: shimLibrary})
	}
	return r
}

// seen returns GPU memory as a slice. GPU memory of the shim is host memory.
func seen(m device.Region) []byte {
	if at, ok := addressOf(m); ok {
		return unsafe.Slice((*byte)(at), m.Bytes)
	}
	return m.Host()
}

func (r *ranks) group(comms []*Communicator) collectivetest.Group {
	g := collectivetest.GroupOf(comms, func(rank int) { r.inner[rank].Die() })
	g.Device = func(rank int) device.Device { return r.devs[rank] }
	g.Host = seen
	return g
}

// connect joins the ranks concurrently. It returns the result of each rank.
func (r *ranks) connect(limit time.Duration) (comms []*Communicator, errs []error) {
	comms, errs = make([]*Communicator, len(r.config)), make([]error, len(r.config))
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ended := make(chan struct{})
	for rank := range r.config {
		go func() {
			comms[rank], errs[rank] = Connect(ctx, r.config[rank])
			ended <- struct{}{}
		}()
	}
	for range r.config {
		<-ended
	}
	return comms, errs
}

// joined joins the ranks, and ends the test unless all of them succeed.
func (r *ranks) joined(t conformance.TB) []*Communicator {
	t.Helper()
	comms, errs := r.connect(time.Minute)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return comms
}

func TestConformance(t *testing.T) {
	lib := shim(t)
	suite := conformance.Go(t)
	if !needtest.Hostile.On() {
		suite = conformance.Brief(suite, needtest.Hostile.Why("takes seconds"))
	}
	collectivetest.Run(suite, func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		r := prepare(t, lib, size, limit)
		return r.group(r.joined(t))
	})
}

var _ collective.Positioner = (*Communicator)(nil)
