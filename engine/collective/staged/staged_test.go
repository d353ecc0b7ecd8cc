package staged

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// group runs one goroutine per rank, each with its own device. The devices of ranks 0, 2, 4 and so on hide their
// memory.
func group(t conformance.TB, size int, limit time.Duration,
	stream func(device.Stream) device.Stream) collectivetest.Group {
	t.Helper()
	inner, err := local.New(size, local.Options{Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	devs := make([]device.Device, size)
	g := collectivetest.Group{
		Kill:   func(rank int) { inner[rank].Die() },
		Device: func(rank int) device.Device { return devs[rank] },
		Host:   func(m device.Region) []byte { return uncover(m).Host() },
	}
	for rank, c := range inner {
		if rank%2 == 1 {
			devs[rank] = reference.New()
			g.Comms = append(g.Comms, c)
			continue
		}
		devs[rank] = hidden{reference.New()}
		staged, err := New(c, flawed{devs[rank], stream})
		if err != nil {
			t.Fatal(err)
		}
		g.Comms = append(g.Comms, staged)
	}
	return g
}

// flawed is a device. If stream is not nil, it wraps every stream of the device.
type flawed struct {
	device.Device
	stream func(device.Stream) device.Stream
}

func (d flawed) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	if err == nil && d.stream != nil {
		s = d.stream(s)
	}
	return s, err
}

// The group has ranks with and without hidden memory, and their results must be bit-equal. HETERO_HOSTILE=1 adds checks
// that take seconds.
func TestConformance(t *testing.T) {
	suite := conformance.Go(t)
	if !needtest.Hostile.On() {
		suite = conformance.Brief(suite, needtest.Hostile.Why("takes seconds"))
	}
	collectivetest.Run(suite, func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		return group(t, size, limit, nil)
	})
}

// failing is a stream whose copies fail.
type failing struct {
	device.Stream
	asked <-chan struct{} // closed when the copy may fail
}

var errBus = errors.New("fell off the bus")

func (f failing) Copy(_, _ device.Region) error {
	<-f.asked
	return errBus
}

func TestCopyThatFailsEndsTheGroup(t *testing.T) {
	// asked is closed when both ranks have enqueued their operations, because a communicator refuses operations after
	// its failure.
	asked := make(chan struct{})
	g := group(conformance.Go(t), 2, time.Minute, func(s device.Stream) device.Stream { return failing{s, asked} })
	done, errs := [2]device.Event{}, [2]error{}
	for rank, c := range g.Comms {
		dev := g.Device(rank)
		m, err := dev.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		if done[rank], err = reference.New().NewEvent(); err != nil {
			t.Fatal(err)
		}
		if err := c.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(m), DType: tensor.F32,
			Done: done[rank]}); err != nil {
			t.Fatal(err)
		}
	}
	close(asked)
	for rank, c := range g.Comms {
		if err := done[rank].WaitHost(time.Minute); err != nil {
			t.Errorf("rank %d: Done was not completed: %v", rank, err)
		}
		errs[rank] = c.Sync(t.Context())
		if err := c.Close(); err != nil {
			t.Errorf("rank %d: close: %v", rank, err)
		}
	}
	var peer *collective.PeerError
	if !errors.Is(errs[0], errBus) || !errors.As(errs[1], &peer) || peer.Rank != 0 ||
		!strings.Contains(errs[1].Error(), errBus.Error()) {
		t.Errorf("got %v and %v, want that rank 0 %v", errs[0], errs[1], errBus)
	}
}

// The operations of a step must reuse the page-locked memory of the previous step.
func TestPageLockedMemoryIsKept(t *testing.T) {
	inner, err := local.New(1, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev := &counting{Device: hidden{reference.New()}}
	c, err := New(inner[0], dev)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dev.Alloc(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	half := device.Region{Buffer: m, Bytes: 512}
	ops := []collective.Op{collective.AllReduce{Buffer: half, DType: tensor.F32}, collective.Broadcast{Buffer: half},
		collective.AllReduce{Buffer: device.Whole(m), DType: tensor.F32}}
	for range 5 {
		for _, op := range ops {
			if err := errors.Join(c.Enqueue(op), c.Sync(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dev.taken != len(ops) {
		t.Errorf("page-locked memory was taken %d times, want once for each of the %d operations", dev.taken, len(ops))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if dev.taken != dev.freed {
		t.Errorf("%d pieces were taken, %d given back", dev.taken, dev.freed)
	}
}

type counting struct {
	device.Device
	taken, freed int
}

type counted struct {
	device.Buffer
	freed *int
}

func (b *counted) Free() error { *b.freed++; return b.Buffer.Free() }

func (d *counting) AllocHost(bytes int64) (device.Buffer, error) {
	b, err := d.Device.AllocHost(bytes)
	d.taken++
	return &counted{b, &d.freed}, err
}

func (d *counting) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return countedStream{s}, err
}

type countedStream struct{ device.Stream }

func (s countedStream) Copy(dst, src device.Region) error {
	for _, r := range []*device.Region{&dst, &src} {
		if b, ok := r.Buffer.(*counted); ok {
			r.Buffer = b.Buffer
		}
	}
	return s.Stream.Copy(dst, src)
}
