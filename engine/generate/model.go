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

// Options describes a causal language model.
type Options struct {
	Model      models.Language
	Vocabulary int          // number of tokens in the vocabulary
	Positions  int          // largest number of tokens that the model reads
	Compute    tensor.DType // type of activations: F32, BF16, F16
	// Own states that the model is user-defined, not built in. Next then checks that the model is causal, and that the
	// key-value cache does not change its logits.
	Own  bool
	Warn func(reason string) // called at most once, when Next starts to read whole texts; nil: no call
}

// Model is a language model with its weights on one device. It is not safe for concurrent use.
type Model struct {
	o      Options
	dev    device.Device
	cache  *plan.Cache
	state  *plan.State
	stream device.Stream
	passes map[int]*pass // passes by number of positions; key next: the pass for one token
	cached []int32       // tokens whose keys and values are in the key-value cache
	whole  bool          // whether Next reads the whole text for each token, without a cache
	proved int           // length of the longest text for which prove has checked a user-defined model
	closer []func() error
}

// next is the key of the pass that reads one token and the key-value cache.
const next = 0

// pass computes the logits for one position. The pass of a text reads the whole text. The pass with the key next
// reads only one token, which follows the tokens in the cache.
type pass struct {
	plan               *plan.Plan
	stale              bool // the weights have changed since the plan last made its copies of them
	tokens, at, logits device.Region
	rows, past         []device.Region // nn.CacheRows and nn.CachePast of each cached value
	rowBytes           []int64         // bytes of one position in these regions
	host               device.Buffer   // host twins of tokens, at and logits, in this order
}

// shortest is the number of positions of the smallest plan.
const shortest = 32

// Open allocates the weights, which are 0 until Load, and a key-value cache for Positions tokens. If the device lacks
// device.AttentionStep, or if a user-defined model cannot use a cache, Open calls o.Warn, and Next works without a
// cache. If the device lacks another op of the model, Open fails, and device.ErrUnsupported is in the chain of the
// error.
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
	return m, m.open()
}

// open makes the first pass, and the pass that reads the cache.
func (m *Model) open() error {
	if m.o.Own {
		if reason := m.o.uncacheable(); reason != "" {
			m.withoutCache(reason)
		}
		// Take the parameters from the pass of a text, because the pass of one token of a wrong model may lack some of
		// them.
		if _, err := m.textOf(1); err != nil || m.whole {
			return err
		}
	}
	_, err := m.passOf(next)
	switch {
	case errors.Is(err, device.ErrUnsupported):
		m.withoutCache(fmt.Sprintf("device %s cannot compute a token from the keys and values of earlier tokens",
			m.dev.Info().Name))
	case err != nil && m.o.Own:
		m.withoutCache("the pass of one token fails: " + err.Error())
	case err != nil:
		return err
	}
	_, err = m.textOf(1)
	return err
}

// withoutCache makes Next read the whole text for each token.
func (m *Model) withoutCache(reason string) {
	m.whole, m.cached = true, nil
	if m.o.Warn != nil {
		m.o.Warn(reason)
	}
}

// lengthsNode is the node with the number of cached tokens.
const lengthsNode = "lengths of the cache"

// graph returns the forward pass of a text of length positions, or of one token that follows the cached tokens. It
// also returns the number of cached values.
func (o Options) graph(length int, cached bool) (g *graph.Graph, values int, err error) {
	cache := nn.Cache{Positions: o.Positions}
	g, err = graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Compute: o.Compute}
		if cached {
			net.Cache = &cache
		}
		at := g.Input("at", tensor.I32, 1, 1)
		in := models.Tokens{Tokens: g.Input("tokens", tensor.I32, 1, max(length, 1))}
		if length == next {
			in.Positions, cache.Lengths = at, g.Reshape(lengthsNode, at, 1)
		}
		made := o.Model(net, in)
		rows := made.Rows
		if length != next {
			rows = o.row(g, rows, at)
		}
		g.Output("logits", g.Linear("logits", rows, made.Weight, made.Bias, g.ParamType()))
	})
	return g, cache.Values, err
}

// row returns one row (1, C) of rows (T, C). The value at (1, 1) is the index of this row.
func (o Options) row(g *graph.Graph, rows, at *graph.Value) *graph.Value {
	if rows.DType != g.ParamType() { // a table must have the type of parameters
		rows = g.Cast("rows", rows, g.ParamType())
	}
	row := g.Embedding("last", at, graph.Tables{Weight: rows}, o.Compute) // (1, 1, C)
	return g.Reshape("last", row, 1, rows.Shape[1])
}

// lengthOf returns the number of positions of the shortest pass for a text of n tokens.
func (m *Model) lengthOf(n int) int {
	length := min(shortest, m.o.Positions)
	for length < n {
		length = min(2*length, m.o.Positions)
	}
	return length
}

// passOf returns the pass for a text of length positions, or for one token that follows the cached tokens.
func (m *Model) passOf(length int) (*pass, error) {
	if p := m.passes[length]; p != nil {
		return p, nil
	}
	g, values, err := m.o.graph(length, !m.whole)
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
			return nil, errors.Join(err, p.plan.Free())
		}
		m.closer = append(m.closer, m.state.Close)
	}
	bytes := max(p.plan.ArenaBytes(), 1)
	arena, err := m.dev.Alloc(bytes)
	if err != nil {
		err = fmt.Errorf("generate: allocate %d bytes for %d positions: %w", bytes, max(length, 1), err)
		return nil, errors.Join(err, p.plan.Free())
	}
	m.closer = append(m.closer, arena.Free)
	m.closer = append(m.closer, p.plan.Free)
	if err := p.plan.Bind(device.Whole(arena), m.state); err != nil {
		return nil, err
	}
	if err := p.find(values, length); err != nil {
		return nil, err
	}
	if p.host, err = m.dev.AllocHost(p.tokens.Bytes + p.at.Bytes + p.logits.Bytes); err != nil {
		return nil, err
	}
	m.closer = append(m.closer, p.host.Free)
	m.passes[length] = p
	return p, nil
}

// find sets the regions of a pass of length positions, or of the pass that reads the key-value cache.
func (p *pass) find(values, length int) error {
	var errs []error
	region := func(of func(string) (device.Region, device.TensorSpec, error), name string) (device.Region,
		device.TensorSpec) {
		r, spec, err := of(name)
		errs = append(errs, err)
		return r, spec
	}
	p.tokens, _ = region(p.plan.Input, "tokens")
	p.at, _ = region(p.plan.Input, "at")
	p.logits, _ = region(p.plan.Output, "logits")
	for i := range values {
		rows, spec := region(p.plan.Output, nn.CacheRows(i))
		if len(spec.Shape) == 3 && (spec.Shape[0] != 1 || spec.Shape[1] != max(length, 1)) {
			return fmt.Errorf("%w have the shape %v, want one row for each of %d tokens", errRows, spec.Shape,
				max(length, 1))
		}
		p.rows = append(p.rows, rows)
		p.rowBytes = append(p.rowBytes, spec.Size()/int64(max(spec.Shape[1], 1)))
		if length == next {
			past, _ := region(p.plan.Input, nn.CachePast(i))
			p.past = append(p.past, past)
		}
	}
	return errors.Join(errs...)
}

// Load sets the weights to the values that read returns. f is the file of these values. If the tensors of f differ
// from those of the model, the error lists the differences.
func (m *Model) Load(f *checkpoint.File, read func(name string, dst []byte) error) error {
	for _, p := range m.passes {
		p.stale = true
	}
	m.cached, m.proved = nil, 0
	return f.Load(m.state, read)
}

// Next returns the logits of the next token, one for each token of the vocabulary. tokens must not be empty, and each
// token must be below Vocabulary. If tokens are those of the previous call plus one, Next computes only the last
// token.
func (m *Model) Next(tokens []int32) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, errors.New("generate: got an empty prompt, want at least one token")
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= m.o.Vocabulary {
			return nil, fmt.Errorf("generate: token %d is %d, want 0 to %d", i, t, m.o.Vocabulary-1)
		}
	}
	tokens = tokens[max(0, len(tokens)-m.o.Positions):]
	if m.o.Own && m.proved < len(tokens) {
		if err := m.prove(len(tokens)); err != nil {
			return nil, err
		}
	}
	if last := len(tokens) - 1; last > 0 && slices.Equal(m.cached, tokens[:last]) {
		return m.read(m.passes[next], tokens, last)
	}
	p, err := m.textOf(len(tokens))
	if err != nil {
		return nil, err
	}
	return m.read(p, tokens, 0)
}

// read runs a pass on the tokens from `from` on, which is 0 in the pass of a text. It puts their keys and values into
// the cache, and returns the logits for the last token.
func (m *Model) read(p *pass, tokens []int32, from int) ([]float32, error) {
	if m.whole {
		return m.run(p, tokens, 0, len(tokens)-1, nil)
	}
	step := m.passes[next]
	m.cached = nil // the contents are unknown until the pass has ended
	logits, err := m.run(p, tokens[from:], 0, len(tokens)-1, func() error {
		for i, rows := range p.rows {
			size := p.rowBytes[i]
			rows.Bytes = size * int64(len(tokens)-from)
			past := device.Region{Buffer: step.past[i].Buffer, Offset: step.past[i].Offset + size*int64(from),
				Bytes: rows.Bytes}
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

// run runs a pass on tokens, followed by padding, and then calls after. It returns the logits for the position at.
func (m *Model) run(p *pass, tokens []int32, padding int32, at int, after func() error) ([]float32, error) {
	mem := p.host.Host()
	for i := range int(p.tokens.Bytes / 4) {
		t := padding
		if i < len(tokens) {
			t = tokens[i]
		}
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
	if after == nil {
		after = func() error { return nil }
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

// Close frees all resources in reverse order of allocation.
func (m *Model) Close() error {
	var errs []error
	for i := len(m.closer) - 1; i >= 0; i-- {
		errs = append(errs, m.closer[i]())
	}
	m.closer = nil
	return errors.Join(errs...)
}
