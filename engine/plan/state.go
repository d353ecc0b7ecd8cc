package plan

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// State is the memory of a model on a device: parameter values, their gradients, running statistics.
type State struct {
	Params                *Params
	Values, Grads, States device.Buffer

	cache   *Cache
	stream  device.Stream
	staging device.Buffer // host memory for the largest tensor, plain
	plain   device.Buffer // device memory for the largest tensor, plain
}

// NewState allocates the zeroed memory of a model: params.Bytes, TrainBytes and StateBytes, and staging for the largest
// tensor.
func NewState(cache *Cache, params *Params) (_ *State, err error) {
	s := &State{Params: params, cache: cache}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	largest := int64(alignBytes)
	for _, p := range append(append([]ParamInfo{}, params.Params...), params.States...) {
		largest = max(largest, p.Spec.Shape.Elements()*p.Spec.DType.Size())
	}
	dev := cache.Device
	if s.stream, err = dev.NewStream(); err != nil {
		return nil, fmt.Errorf("plan: state: %w", err)
	}
	if s.staging, err = dev.AllocHost(largest); err != nil {
		return nil, fmt.Errorf("plan: allocate a staging buffer of %d bytes: %w", largest, err)
	}
	for _, b := range []struct {
		to    *device.Buffer
		name  string
		bytes int64
	}{{&s.plain, "staging", largest}, {&s.Values, "parameters", params.Bytes},
		{&s.Grads, "gradients", params.TrainBytes}, {&s.States, "statistics", params.StateBytes}} {
		if *b.to, err = s.NewFlat(b.bytes); err != nil {
			return nil, fmt.Errorf("plan: %s of %d bytes: %w", b.name, b.bytes, err)
		}
	}
	return s, nil
}

// Bytes returns the device memory of the state: values, gradients, statistics and staging.
func (s *State) Bytes() int64 {
	return s.Values.Bytes() + s.Grads.Bytes() + s.States.Bytes() + s.plain.Bytes()
}

// HostBytes returns the host memory of the state, through which parameters are read and written.
func (s *State) HostBytes() int64 { return s.staging.Bytes() }

// NewFlat allocates zeroed device memory, such as optimizer moments. The caller frees it.
func (s *State) NewFlat(bytes int64) (device.Buffer, error) {
	bytes = max(bytes, alignBytes)
	buf, err := s.cache.Device.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	op := device.Fill{DType: tensor.U8, Shape: tensor.Shape{int(bytes)}}
	if err := s.runOnce(op, nil, At(buf, 0, device.Spec(tensor.U8, int(bytes)))); err != nil {
		return nil, errors.Join(err, buf.Free())
	}
	return buf, nil
}

// runOnce compiles and runs a single op, and waits for it.
func (s *State) runOnce(op device.Op, in []Operand, out Operand) error {
	ops := NewSequence(s.cache)
	ops.Launch(op.Kind(), op, in, out)
	program, err := ops.Program()
	if err == nil {
		err = errors.Join(s.stream.Run(program), s.stream.Sync())
	}
	return errors.Join(err, ops.Close())
}

// Read copies the tensor of info from a flat buffer to dst, in plain layout. len(dst) is the size of the plain tensor
// in bytes.
func (s *State) Read(flat device.Buffer, info ParamInfo, dst []byte) error {
	if _, err := s.stage(info, len(dst)); err != nil {
		return err
	}
	return s.View(flat, info, func(data []byte) error {
		copy(dst, data)
		return nil
	})
}

// View calls f with the data of the tensor of info in a flat buffer, in plain layout. The data is valid only during the
// call, and f must not change it. No stream may write to the tensor during the call.
func (s *State) View(flat device.Buffer, info ParamInfo, f func(data []byte) error) error {
	plain := device.TensorSpec{Shape: info.Spec.Shape, DType: info.Spec.DType}
	src := device.Region{Buffer: flat, Offset: info.Offset, Bytes: info.Spec.Size()}
	if info.Spec.Layout != device.Plain {
		to := device.Region{Buffer: s.plain, Bytes: plain.Size()}
		if err := s.runOnce(device.Reorder{To: plain.DType}, []Operand{{info.Spec, src}},
			Operand{plain, to}); err != nil {
			return fmt.Errorf("plan: reading %s: %w", info.Name, err)
		}
		src = to
	}
	if data := src.Host(); data != nil {
		return f(data)
	}
	host := device.Region{Buffer: s.staging, Bytes: plain.Size()}
	if err := errors.Join(s.stream.Copy(host, src), s.stream.Sync()); err != nil {
		return fmt.Errorf("plan: reading %s: %w", info.Name, err)
	}
	return f(host.Host())
}

// Write copies src, in plain layout, to the tensor of info in a flat buffer, and zeroes the padding inside the tensor.
func (s *State) Write(flat device.Buffer, info ParamInfo, src []byte) error {
	plain, err := s.stage(info, len(src))
	if err != nil {
		return err
	}
	host := device.Region{Buffer: s.staging, Bytes: plain.Size()}
	copy(host.Host(), src)
	dst := device.Region{Buffer: flat, Offset: info.Offset, Bytes: info.Spec.Size()}
	to := dst
	if info.Spec.Layout != device.Plain {
		to = device.Region{Buffer: s.plain, Bytes: plain.Size()}
	}
	if err := errors.Join(s.stream.Copy(to, host), s.stream.Sync()); err != nil {
		return fmt.Errorf("plan: writing %s: %w", info.Name, err)
	}
	if info.Spec.Layout == device.Plain {
		return nil
	}
	if err := s.runOnce(device.Reorder{To: plain.DType}, []Operand{{plain, to}}, Operand{info.Spec, dst}); err != nil {
		return fmt.Errorf("plan: writing %s: %w", info.Name, err)
	}
	return nil
}

// Each calls f for every parameter and state.
func (s *State) Each(f func(name string, dtype tensor.DType, shape tensor.Shape)) {
	for _, list := range [][]ParamInfo{s.Params.Params, s.Params.States} {
		for _, t := range list {
			f(t.Name, t.Spec.DType, t.Spec.Shape)
		}
	}
}

// Fill sets all parameters and states. read writes the value of the named tensor, row-major, to dst.
func (s *State) Fill(read func(name string, dst []byte) error) error {
	for _, part := range []struct {
		flat device.Buffer
		list []ParamInfo
	}{{s.Values, s.Params.Params}, {s.States, s.Params.States}} {
		for _, t := range part.list {
			value := make([]byte, t.Spec.Shape.Elements()*t.Spec.DType.Size())
			if err := read(t.Name, value); err != nil {
				return err
			}
			if err := s.Write(part.flat, t, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// stage checks the length of host data for info and returns its plain spec.
func (s *State) stage(info ParamInfo, got int) (device.TensorSpec, error) {
	plain := device.TensorSpec{Shape: info.Spec.Shape, DType: info.Spec.DType}
	if int64(got) != plain.Size() {
		return plain, fmt.Errorf("plan: %s: got %d bytes, want %d for %v", info.Name, got, plain.Size(), plain)
	}
	return plain, nil
}

// Close frees the memory.
func (s *State) Close() error {
	var errs []error
	for _, b := range []device.Buffer{s.Values, s.Grads, s.States, s.plain, s.staging} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	*s = State{}
	return errors.Join(errs...)
}
