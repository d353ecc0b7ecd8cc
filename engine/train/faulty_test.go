package train

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// faulty is a device. At the request of a test, its streams drop copies or fail.
type faulty struct {
	device.Device
	copied func(dst, src device.Region) (done bool, err error) // called before each copy; nil: there are no faults
}

func (f *faulty) NewStream() (device.Stream, error) {
	s, err := f.Device.NewStream()
	return faultyStream{s, f}, err
}

type faultyStream struct {
	device.Stream
	dev *faulty
}

func (s faultyStream) Copy(dst, src device.Region) error {
	if s.dev.copied != nil {
		if done, err := s.dev.copied(dst, src); done || err != nil {
			return err
		}
	}
	return s.Stream.Copy(dst, src)
}

// faultsOf returns the faulty device of a replica.
func faultsOf(t *testing.T, r *replica.Replica) *faulty {
	t.Helper()
	dev := r.Device()
	if g, ok := dev.(*gated); ok {
		dev = g.Device
	}
	return dev.(*faulty)
}

// poison makes all gradients NaN until heal is called. It sets the loss factor to NaN, and drops later writes to the
// factor.
func poison(t *testing.T, r *replica.Replica) (heal func()) {
	t.Helper()
	return poisonWith(t, r, fillNaN)
}

func poisonWith(t *testing.T, r *replica.Replica, fill func([]byte)) (heal func()) {
	t.Helper()
	factor, _, err := r.Plan().Input("scale")
	if err != nil {
		t.Error(err)
		return func() {}
	}
	fill(factor.Host())
	dev := faultsOf(t, r)
	dev.copied = func(dst, _ device.Region) (bool, error) { return dst == factor, nil }
	return func() { dev.copied = nil }
}
