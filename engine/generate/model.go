package generate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

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
	passes map[int]*pass // by their number of positions; next has the pass of one token
	cached []int32       // tokens whose rows are in the key-value cache
	closer []func() error
}

// next is the key of the pass that reads one token and the key-value cache.
const next = 0

// pass computes the logits after one of the tokens of a text: of up to its number of positions, or of the token that
// follows the cached ones.
type pass struct {
	plan               *plan.Plan
	stale              bool // the weights have changed since the plan copied them
	tokens, at, logits device.Region
	rows, past         []device.Region // nn.CacheRows and nn.CachePast of each attention layer
	rowBytes           []int64         // bytes of a position in these regions
	host               device.Buffer   // twins of tokens, at and logits, in this order
}

// shortest is the number of positions of the smallest plan.
const shortest = 32

// Open allocates the weights, which are zero until Load, and the key-value cache of a text of Positions tokens. It
// returns an error if the device lacks an op of the model.
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
	_, err = m.passOf(next)
	return m, err
}

// graph returns the forward pass of a text of length positions, or of one token after the cached ones, and the number
// of attention layers.
func (o Options) graph(length int) (g *graph.Graph, layers int, err error) {
	cache := nn.Cache{Positions: o.Positions}
	g, err = graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Compute: o.Compute, Cache: &cache}
		at := g.Input("at", tensor.I32, 1, 1)
		in := models.Tokens{Tokens: g.Input("tokens", tensor.I32, 1, max(length, 1))}
		if length == next {
			in.Positions, cache.Lengths = at, g.Reshape("lengths", at, 1)
		}
		made := o.Model(net, in)
		rows := made.Rows
		if length != next {
			rows = o.row(g, rows, at)
		}
		g.Output("logits", g.Linear("logits", rows, made.Weight, made.Bias, g.ParamType()))
	})
	return g, cache.Layers, err
}

// row returns the row (1, C) of rows (T, C) with the index at (1, 1).
func (o Options) row(g *graph.Graph, rows, at *graph.Value) *graph.Value {
	if rows.DType != g.ParamType() { // of a table
		rows = g.Cast("rows", rows, g.ParamType())
	}
	row := g.Embedding("last", at, graph.Tables{Weight: rows}, o.Compute) // (1, 1, C)
	return g.Reshape("last", row, 1, rows.Shape[1])
}

// lengthOf returns the number of positions of the smallest pass for a text of n tokens.
func (m *Model) lengthOf(n int) int {
	length := min(shortest, m.o.Positions)
	for length < n {
		length = min(2*length, m.o.Positions)
	}
	return length
}

// passOf returns the pass of a text of length positions, or of one token after the cached ones.
func (m *Model) passOf(length int) (*pass, error) {
	if p := m.passes[length]; p != nil {
		return p, nil
	}
	g, layers, err := m.o.graph(length)
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
		return nil, fmt.Errorf("generate: allocate %d bytes for %d positions: %w", bytes, max(length, 1), err)
	}
	m.closer = append(m.closer, arena.Free)
	m.closer = append(m.closer, p.plan.Free)
	if err := p.plan.Bind(device.Whole(arena), m.state); err != nil {
		return nil, err
	}
	if err := p.find(layers, length == next); err != nil {
		return nil, err
	}
	if p.host, err = m.dev.AllocHost(p.tokens.Bytes + p.at.Bytes + p.logits.Bytes); err != nil {
		return nil, err
	}
	m.closer = append(m.closer, p.host.Free)
	m.passes[length] = p
	return p, nil
}

// find sets the regions of the pass. step: it reads the key-value cache.
func (p *pass) find(layers int, step bool) error {
	var errs []error
	region := func(of func(string) (device.Region, device.TensorSpec, error), name string) (device.Region, device.TensorSpec) {
		r, spec, err := of(name)
		errs = append(errs, err)
		return r, spec
	}
	p.tokens, _ = region(p.plan.Input, "tokens")
	p.at, _ = region(p.plan.Input, "at")
	p.logits, _ = region(p.plan.Output, "logits")
	for i := range layers {
		rows, spec := region(p.plan.Output, nn.CacheRows(i))
		p.rows = append(p.rows, rows)
		p.rowBytes = append(p.rowBytes, spec.Size()/int64(max(spec.Shape[1], 1)))
		if step {
			past, _ := region(p.plan.Input, nn.CachePast(i))
			p.past = append(p.past, past)
		}
	}
	return errors.Join(errs...)
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
	m.cached = nil
	return m.state.Fill(read)
}

// Next returns the logits of the token that follows tokens, one for each token of the vocabulary. tokens has at least
// one element, and each is below Vocabulary. If tokens are those of the last call and one more, Next reads only this one.
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
	last := len(tokens) - 1
	from, length := 0, m.lengthOf(len(tokens))
	if last > 0 && slices.Equal(m.cached, tokens[:last]) {
		from, length = last, next
	}
	p, err := m.passOf(length)
	if err != nil {
		return nil, err
	}
	step := m.passes[next]
	m.cached = nil // of an unknown state until the pass has ended
	logits, err := m.run(p, tokens[from:], last, func() error {
		for i, rows := range p.rows {
			size := p.rowBytes[i]
			rows.Bytes = size * int64(len(tokens)-from)
			past := device.Region{Buffer: step.past[i].Buffer, Offset: step.past[i].Offset + size*int64(from), Bytes: rows.Bytes}
			if err := m.stream.Copy(past, rows); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && len(p.rows) > 0 {
		m.cached = slices.Clone(tokens)
	}
	return logits, err
}

// run runs a pass on tokens, calls after, and returns the logits after the token at position at of the text.
func (m *Model) run(p *pass, tokens []int32, at int, after func() error) ([]float32, error) {
	mem := p.host.Host()
	clear(mem[:p.tokens.Bytes])
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(mem[4*i:], uint32(t))
	}
	binary.LittleEndian.PutUint32(mem[p.tokens.Bytes:], uint32(at))
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
		after,
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
