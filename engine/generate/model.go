package generate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Options describe a causal language model.
type Options struct {
	Model      models.Language
	Vocabulary int          // tokens of the model
	Positions  int          // longest text that the model reads
	Compute    tensor.DType // of activations: F32, BF16, F16
}

// Model is a language model with its weights on one device. One goroutine uses it at a time.
type Model struct {
	o      Options
	dev    device.Device
	cache  *plan.Cache
	state  *plan.State
	stream device.Stream
	passes map[int]*pass // by their number of positions
	closer []func() error
}

// pass computes the logits after one of the tokens of a text of up to length positions.
type pass struct {
	plan               *plan.Plan
	stale              bool // the weights have changed since the plan copied them
	tokens, at, logits device.Region
	host               device.Buffer // twins of the three regions, in this order
}

// shortest is the number of positions of the smallest plan.
const shortest = 32

// Open allocates the weights, which are zero until Load. A device that lacks an op of the model is an error.
func Open(dev device.Device, o Options) (_ *Model, err error) {
	m := &Model{o: o, dev: dev, cache: plan.NewCache(dev), passes: map[int]*pass{}}
	m.closer = append(m.closer, m.cache.Close)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.stream, err = dev.NewStream(); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	m.closer = append(m.closer, m.stream.Close)
	_, err = m.passOf(1)
	return m, err
}

// graph returns the forward pass of a text of length positions.
func (o Options) graph(length int) (*graph.Graph, error) {
	return graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Compute: o.Compute}
		made := o.Model(net, models.Tokens{Tokens: g.Input("tokens", tensor.I32, 1, length)})
		rows := made.Rows
		if rows.DType != g.ParamType() {
			rows = g.Cast("rows", rows, g.ParamType())
		}
		c := rows.Shape[1]
		last := g.Embedding("last", g.Input("at", tensor.I32, 1, 1), graph.Tables{Weight: rows}, o.Compute) // (1, 1, C)
		g.Output("logits", g.Linear("logits", g.Reshape("last", last, 1, c), made.Weight, made.Bias, g.ParamType()))
	})
}

// passOf returns the pass for a text of n tokens.
func (m *Model) passOf(n int) (*pass, error) {
	length := min(shortest, m.o.Positions)
	for length < n {
		length = min(2*length, m.o.Positions)
	}
	if p := m.passes[length]; p != nil {
		return p, nil
	}
	g, err := m.o.graph(length)
	if err != nil {
		return nil, err
	}
	var params *plan.Params
	if m.state != nil {
		params = m.state.Params
	}
	p := &pass{stale: true}
	if p.plan, err = plan.Compile(m.cache, g, params); err != nil {
		return nil, err
	}
	if m.state == nil {
		if m.state, err = plan.NewState(m.cache, p.plan.Params()); err != nil {
			return nil, err
		}
		m.closer = append(m.closer, m.state.Close)
	}
	bytes := max(p.plan.ArenaBytes(), 1)
	arena, err := m.dev.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("generate: allocate %d bytes for %d positions: %w", bytes, length, err)
	}
	m.closer = append(m.closer, arena.Free)
	m.closer = append(m.closer, p.plan.Free)
	if err := p.plan.Bind(device.Whole(arena), m.state); err != nil {
		return nil, err
	}
	var errs [3]error
	p.tokens, _, errs[0] = p.plan.Input("tokens")
	p.at, _, errs[1] = p.plan.Input("at")
	p.logits, _, errs[2] = p.plan.Output("logits")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if p.host, err = m.dev.AllocHost(p.tokens.Bytes + p.at.Bytes + p.logits.Bytes); err != nil {
		return nil, err
	}
	m.closer = append(m.closer, p.host.Free)
	m.passes[length] = p
	return p, nil
}

// Load sets the weights to those of f, whose values read returns. Its error lists the differences if f has other
// tensors than the model.
func (m *Model) Load(f *checkpoint.File, read func(name string, dst []byte) error) error {
	var want []checkpoint.Info
	for _, t := range m.state.Params.Params {
		want = append(want, checkpoint.Info{Name: t.Name, DType: t.Spec.DType, Shape: t.Spec.Shape})
	}
	if err := f.Check(want); err != nil {
		return err
	}
	for _, p := range m.passes {
		p.stale = true
	}
	return m.state.Fill(read)
}

// Next returns the logits of the token that follows tokens, one for each token of the vocabulary. tokens has at least
// one element, and each is below Vocabulary.
func (m *Model) Next(tokens []int32) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, errors.New("generate: got no tokens, want at least one")
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= m.o.Vocabulary {
			return nil, fmt.Errorf("generate: token %d is %d, want 0 to %d", i, t, m.o.Vocabulary-1)
		}
	}
	tokens = tokens[max(0, len(tokens)-m.o.Positions):]
	p, err := m.passOf(len(tokens))
	if err != nil {
		return nil, err
	}
	mem := p.host.Host()
	clear(mem[:p.tokens.Bytes])
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(mem[4*i:], uint32(t))
	}
	binary.LittleEndian.PutUint32(mem[p.tokens.Bytes:], uint32(len(tokens)-1))
	out := device.Region{Buffer: p.host, Offset: p.tokens.Bytes + p.at.Bytes, Bytes: p.logits.Bytes}
	if p.stale {
		if err := p.plan.Prepare(m.stream); err != nil {
			return nil, fmt.Errorf("generate: prepare: %w", err)
		}
		p.stale = false
	}
	for _, step := range []func() error{
		func() error { return m.stream.Copy(p.tokens, device.Region{Buffer: p.host, Bytes: p.tokens.Bytes}) },
		func() error {
			return m.stream.Copy(p.at, device.Region{Buffer: p.host, Offset: p.tokens.Bytes, Bytes: p.at.Bytes})
		},
		func() error { return p.plan.Forward(m.stream) },
		func() error { return m.stream.Copy(out, p.logits) },
		m.stream.Sync,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("generate: %w", err)
		}
	}
	logits := make([]float32, m.o.Vocabulary)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(mem[out.Offset+4*int64(i):]))
	}
	return logits, nil
}

// Close frees everything in reverse order.
func (m *Model) Close() error {
	var errs []error
	for i := len(m.closer) - 1; i >= 0; i-- {
		errs = append(errs, m.closer[i]())
	}
	m.closer = nil
	return errors.Join(errs...)
}
