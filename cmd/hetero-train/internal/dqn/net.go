package dqn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// net is the Q network on one device, with the trained weights and the target weights.
type net struct {
	dev    device.Device
	cache  *plan.Cache
	stream device.Stream
	layers Network

	online, target *plan.State
	optimizer      *optim.Optimizer // nil for a network that only decides
	passes         []*pass
	closer         []func() error
}

// pass is a plan of the network for a fixed number of observations of one shape.
type pass struct {
	net                       *net
	plan                      *plan.Plan
	shape                     Shape
	weights                   *plan.State
	stale                     bool // the weights have changed, so the plan must update its working copies
	closer                    []func() error
	image, facts, pairs, diff port
	q                         port
}

// port is an input or output of a plan. If the host can access the memory of the device, a port needs no copy.
type port struct {
	region device.Region
	staged device.Region // copy in host memory; its buffer is nil if the host can access region
	values []float32     // memory of the host
}

func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// openNet allocates a network whose weights are 0. The shapes of its passes may have other numbers of rows and slots
// than s.
func openNet(dev device.Device, s Shape, layers Network, options optim.Options) (_ *net, err error) {
	if err := errors.Join(s.check(), layers.check()); err != nil {
		return nil, err
	}
	n := &net{dev: dev, cache: plan.NewCache(dev), layers: layers}
	n.closer = append(n.closer, n.cache.Close)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	n.closer = append(n.closer, n.stream.Close)
	// The layout of the parameters is that of the training plan for one observation. It is the same on all devices and
	// for every batch.
	g, err := layers.graph(s, 1, true)
	if err != nil {
		return nil, err
	}
	first, err := plan.CompilePlain(n.cache, g)
	if err != nil {
		return nil, err
	}
	n.closer = append(n.closer, first.Free)
	for _, state := range []**plan.State{&n.online, &n.target} {
		if *state, err = plan.NewState(n.cache, first.Params()); err != nil {
			return nil, err
		}
		n.closer = append(n.closer, (*state).Close)
	}
	if options.Name != "" {
		if n.optimizer, err = optim.New(n.cache, n.online, n.online.Grads, options); err != nil {
			return nil, err
		}
		n.closer = append(n.closer, n.optimizer.Close)
	}
	return n, nil
}

// close frees all resources in reverse order of allocation.
func (n *net) close() error {
	var errs []error
	for len(n.passes) > 0 {
		errs = append(errs, n.passes[len(n.passes)-1].close())
	}
	errs = append(errs, closeAll(n.closer))
	n.closer = nil
	return errors.Join(errs...)
}

// close frees the memory of a pass.
func (p *pass) close() error {
	if at := slices.Index(p.net.passes, p); at >= 0 {
		p.net.passes = slices.Delete(p.net.passes, at, at+1)
	}
	closer := p.closer
	p.closer = nil
	return closeAll(closer)
}

func closeAll(closer []func() error) error {
	var errs []error
	for _, f := range slices.Backward(closer) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// changed marks all passes that use these weights, so that they read the weights again.
func (n *net) changed(weights *plan.State) {
	for _, p := range n.passes {
		p.stale = p.stale || p.weights == weights
	}
}

// initialise draws the weights. Equal seeds give equal weights on every device.
func (n *net) initialise(seed uint64) error {
	for _, p := range n.online.Params.Params {
		values := make([]byte, 4*p.Spec.Shape.Elements())
		stream := random.New(seed, p.Name)
		for i := range len(values) / 4 {
			var v float64
			switch p.Init.Kind {
			case graph.Constant:
				v = p.Init.A
			case graph.Gaussian:
				v = stream.Gaussian(uint64(i), p.Init.A, p.Init.B)
			default:
				v = stream.Between(uint64(i), p.Init.A, p.Init.B)
			}
			binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(float32(v)))
		}
		if err := n.online.Write(n.online.Values, p, values); err != nil {
			return err
		}
	}
	return n.copyTarget()
}

// copyTarget copies the weights to the target weights.
func (n *net) copyTarget() error {
	bytes := n.online.Params.Bytes
	return errors.Join(
		n.stream.Copy(device.Region{Buffer: n.target.Values, Bytes: bytes},
			device.Region{Buffer: n.online.Values, Bytes: bytes}),
		n.stream.Sync())
}

// newPass compiles the network for a number of observations of a shape, with the weights of state.
func (n *net) newPass(state *plan.State, s Shape, observations int, training bool) (_ *pass, err error) {
	g, err := n.layers.graph(s, observations, training)
	if err != nil {
		return nil, err
	}
	p := &pass{net: n, shape: s, weights: state, stale: true}
	n.passes = append(n.passes, p)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.plan, err = plan.Compile(n.cache, g, n.online.Params); err != nil {
		return nil, err
	}
	p.closer = []func() error{p.plan.Free}
	arena, err := n.dev.Alloc(max(p.plan.ArenaBytes(), 1))
	if err != nil {
		return nil, fmt.Errorf("%d observations: allocate %d bytes: %w", observations, p.plan.ArenaBytes(), err)
	}
	p.closer = []func() error{arena.Free, p.plan.Free} // in reverse order: the plan uses the arena
	if err := p.plan.Bind(device.Whole(arena), state); err != nil {
		return nil, err
	}
	ports := []struct {
		to   *port
		name string
		of   func(string) (device.Region, device.TensorSpec, error)
	}{{&p.image, inputImage, p.plan.Input}, {&p.facts, inputFacts, p.plan.Input}, {&p.q, outputQ, p.plan.Output},
		{&p.pairs, inputPairs, p.plan.Input}}
	if training {
		ports = append(ports[:len(ports):len(ports)], struct {
			to   *port
			name string
			of   func(string) (device.Region, device.TensorSpec, error)
		}{&p.diff, inputDiff, p.plan.Input})
	}
	for _, at := range ports {
		if *at.to, err = p.port(at.of(at.name)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pass) port(region device.Region, _ device.TensorSpec, err error) (port, error) {
	if err != nil {
		return port{}, err
	}
	if host := region.Host(); host != nil {
		return port{region: region, values: floats(host)}, nil
	}
	buffer, err := p.net.dev.AllocHost(region.Bytes)
	if err != nil {
		return port{}, err
	}
	p.closer = append(p.closer, buffer.Free)
	staged := device.Region{Buffer: buffer, Bytes: region.Bytes}
	return port{region: region, staged: staged, values: floats(staged.Host())}, nil
}

// send copies the values of an input from the host to the device, if the port has a copy.
func (p *pass) send(to port) error {
	if to.staged.Buffer == nil {
		return nil
	}
	return p.net.stream.Copy(to.region, to.staged)
}

// set writes the state of observation i.
func (p *pass) set(i int, state []float32) {
	s := p.shape
	image, facts := s.image(), s.image()+s.Facts
	copy(p.image.values[i*image:], state[:image])
	copy(p.facts.values[i*s.Facts:], state[image:facts])
	copy(p.pairs.values[i*s.pairs():], state[facts:])
}

// forward computes the values of all actions for all observations. The method value returns them.
func (p *pass) forward() error {
	s := p.net.stream
	if p.stale {
		if err := p.plan.Prepare(s); err != nil {
			return err
		}
		p.stale = false
	}
	for _, in := range []port{p.image, p.facts, p.pairs} {
		if err := p.send(in); err != nil {
			return err
		}
	}
	if err := p.plan.Forward(s); err != nil {
		return err
	}
	if p.q.staged.Buffer != nil {
		if err := s.Copy(p.q.staged, p.q.region); err != nil {
			return err
		}
	}
	return s.Sync()
}

// value returns the values of the actions of observation i after forward.
func (p *pass) value(i int) []float32 {
	n := p.shape.Actions()
	return p.q.values[i*n : (i+1)*n : (i+1)*n]
}

// update computes the gradients from diff, after forward, and changes the weights. If a gradient was not finite, ok is
// false and the weights do not change.
func (p *pass) update(rate float64) (ok bool, err error) {
	n := p.net
	if err := p.send(p.diff); err != nil {
		return false, err
	}
	if err := p.plan.Backward(n.stream); err != nil {
		return false, err
	}
	if err := n.optimizer.Step(n.stream, rate, 1); err != nil {
		return false, err
	}
	if err := n.stream.Sync(); err != nil {
		return false, err
	}
	_, ok = n.optimizer.Result()
	return ok, nil
}

// tensors returns the values in a flat buffer as tensors of a checkpoint. The parameter ending is the suffix of their
// names.
func (n *net) tensors(flat device.Buffer, ending string) ([]checkpoint.Tensor, error) {
	var out []checkpoint.Tensor
	for _, p := range n.online.Params.Params {
		data := make([]byte, 4*p.Spec.Shape.Elements())
		if err := n.online.Read(flat, p, data); err != nil {
			return nil, err
		}
		out = append(out, checkpoint.Tensor{Name: p.Name + ending, DType: p.Spec.DType, Shape: p.Spec.Shape,
			Data: data})
	}
	return out, nil
}

// load fills a flat buffer with the tensors of a file whose names have the suffix ending.
func (n *net) load(f *checkpoint.File, flat device.Buffer, ending string) error {
	for _, p := range n.online.Params.Params {
		data := make([]byte, 4*p.Spec.Shape.Elements())
		if err := f.ReadInto(p.Name+ending, data); err != nil {
			return err
		}
		if err := n.online.Write(flat, p, data); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if f has the weights of another network. The error lists the differences.
func (n *net) check(f *checkpoint.File) error {
	var want []checkpoint.Info
	for _, p := range n.online.Params.Params {
		want = append(want, checkpoint.Info{Name: p.Name, DType: p.Spec.DType, Shape: p.Spec.Shape})
	}
	return f.Check(want)
}
