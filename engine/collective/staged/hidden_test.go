package staged

import (
	"github.com/hetero-train/hetero-train/engine/device"
)

// hidden is a device whose memory the host cannot access, like GPU memory. It computes with the reference device.
type hidden struct{ device.Device }

type hiddenBuffer struct{ device.Buffer }

func (hiddenBuffer) Host() []byte { return nil }

func (d hidden) Alloc(bytes int64) (device.Buffer, error) {
	b, err := d.Device.Alloc(bytes)
	return &hiddenBuffer{b}, err
}

func (d hidden) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return hiddenStream{s}, err
}

func (d hidden) NewProgram(steps []device.Step) (device.Program, error) {
	for i := range steps {
		if l := steps[i].Launch; l != nil {
			seen := *l
			seen.In, seen.Out = allSeen(l.In), allSeen(l.Out)
			steps[i].Launch = &seen
		}
	}
	return d.Device.NewProgram(steps)
}

type hiddenStream struct{ device.Stream }

func (s hiddenStream) Copy(dst, src device.Region) error {
	return s.Stream.Copy(uncover(dst), uncover(src))
}

// uncover returns the same region in memory of the reference device.
func uncover(r device.Region) device.Region {
	if b, ok := r.Buffer.(*hiddenBuffer); ok {
		r.Buffer = b.Buffer
	}
	return r
}

func allSeen(list []device.Region) (out []device.Region) {
	for _, r := range list {
		out = append(out, uncover(r))
	}
	return out
}
