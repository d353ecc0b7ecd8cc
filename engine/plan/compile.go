package plan

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
)

// bufferKind is the buffer that contains a tensor.
type bufferKind uint8

const (
	inArena bufferKind = iota
	inValues
	inGrads
	inStates
)

// storage is the memory of one tensor, or of several tensors in the same memory.
type storage struct {
	buffer      bufferKind
	bytes       int64
	offset      int64 // bytes from the start of the buffer
	first, last int   // first and last launch during which the tensor is alive
	pinned      bool  // used from outside the plan or kept between runs, so no output may overwrite it
	shares      *storage
}

// root returns the storage that s has been merged into.
func (s *storage) root() *storage {
	for s.shares != nil {
		s = s.shares
	}
	return s
}

// version is a value in one layout and type.
type version struct {
	spec     device.TensorSpec
	mem      *storage
	at       int64   // bytes from the start of mem
	producer *launch // launch that writes the version; nil if the host or the optimizer writes it
	readers  int
}

// launch is a kernel with its operands, or an exchange with other ranks.
type launch struct {
	name      string
	op        device.Op
	kernel    device.Kernel // nil for an exchange
	in, out   []*version
	phase     graph.Phase
	workspace *storage
}

// paramUse is a parameter in the layout and type that kernels need. resolveParams decides whether these kernels read
// the parameter itself or a copy.
type paramUse struct {
	param *graph.Value
	*version
}

// compiler is the state of Compile.
type compiler struct {
	cache    *Cache
	kernels  *lease
	g        *graph.Graph
	fixed    *Params // canonical layouts; nil if this plan chooses them
	versions map[*graph.Value][]*version
	uses     []paramUse
	prepare  []*launch
	step     []*launch
	plain    map[*graph.Value]bool // values that the host reads
	readers  map[*graph.Value]int  // number of live nodes, outputs and gradients that read a value
	idle     bool                  // the rank has no samples

	plainParams bool // all canonical layouts are plain (CompilePlain)
}

func newCompiler(cache *Cache, g *graph.Graph, fixed *Params) *compiler {
	return &compiler{cache: cache, kernels: newLease(cache), g: g, fixed: fixed,
		versions: map[*graph.Value][]*version{}, plain: map[*graph.Value]bool{}, readers: map[*graph.Value]int{}}
}

// Compile plans g for the cache's device. layout is the model's parameter layout. It is nil for the first plan, which
// chooses the layout. Errors name the node; device.ErrUnsupported is in the chain if the device supports neither the op
// nor its decomposition.
func Compile(cache *Cache, g *graph.Graph, layout *Params) (*Plan, error) {
	return compile(newCompiler(cache, g, layout))
}

// CompilePlain compiles a first plan in which all parameters have plain layouts, regardless of the device's choice. Use
// it if the devices of the ranks choose different layouts, because the all-reduce sums raw buffers. The plan reorders
// gradients that kernels write in other layouts.
func CompilePlain(cache *Cache, g *graph.Graph) (*Plan, error) {
	c := newCompiler(cache, g, nil)
	c.plainParams = true
	return compile(c)
}

func compile(c *compiler) (_ *Plan, err error) {
	defer c.giveUp(&err)
	g, fixed := c.g, c.fixed
	if fixed != nil {
		if err := fixed.check(g); err != nil {
			return nil, err
		}
	}
	for _, o := range g.Outputs {
		if p := paramOf(o.Value); p != nil {
			return nil,
				fmt.Errorf("plan: output %s cannot be a copy of parameter %s: read the parameter from the model's state instead",
					o.Name, p.Name)
		}
	}
	c.declare()
	nodes := c.live()
	pairs := fusable(nodes)
	for _, n := range nodes {
		if p := pairs[n]; p != nil {
			if err := p.try(c); err != nil {
				return nil, err
			}
			if n = p.instead(n); n == nil {
				continue
			}
		}
		if err := c.compileNode(n); err != nil {
			return nil, err
		}
	}
	params, err := c.resolveParams()
	if err != nil {
		return nil, err
	}
	c.hideExchanges()
	return c.finish(params), nil
}

// giveUp frees the kernels of a plan whose compilation failed.
func (c *compiler) giveUp(err *error) {
	if *err != nil {
		*err = errors.Join(*err, c.kernels.end())
	}
}

func (c *compiler) compileNode(n *graph.Node) error {
	if err := c.node(n); err != nil {
		return fmt.Errorf("plan: %s on %s: %w", n.Name, c.cache.Device.Info().Name, err)
	}
	return nil
}

// declare creates the versions of values that exist before the first launch.
func (c *compiler) declare() {
	for _, in := range c.g.Inputs {
		c.add(in, &version{spec: in.Spec(), mem: &storage{bytes: in.Spec().Size(), pinned: true}})
	}
	offset := int64(0)
	for _, s := range c.g.States {
		bytes := s.Spec().Size()
		c.add(s, &version{spec: s.Spec(), mem: &storage{buffer: inStates, bytes: bytes, offset: offset, pinned: true}})
		offset += alignUp(bytes)
	}
	for _, o := range c.g.Outputs {
		c.plain[o.Value] = true
	}
}

func (c *compiler) add(v *graph.Value, ver *version) {
	c.versions[v] = append(c.versions[v], ver)
}

// live returns the nodes that outputs, gradients or states depend on, in order. It counts the readers of values.
func (c *compiler) live() []*graph.Node {
	for _, o := range c.g.Outputs {
		c.readers[o.Value]++
	}
	for _, gr := range c.g.Gradients {
		c.readers[gr.Value]++
	}
	keep := make([]bool, len(c.g.Nodes))
	for i := len(c.g.Nodes) - 1; i >= 0; i-- {
		n := c.g.Nodes[i]
		for _, a := range device.Aliases(n.Op) {
			keep[i] = keep[i] || n.In[a.In].Role == graph.State
		}
		for _, out := range n.Out {
			keep[i] = keep[i] || c.readers[out] > 0
		}
		if keep[i] {
			for _, in := range n.In {
				c.readers[in]++
			}
		}
	}
	var nodes []*graph.Node
	for i, n := range c.g.Nodes {
		if keep[i] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// paramOf returns the parameter that v is, or of which v is a converted copy. It returns nil for other values.
func paramOf(v *graph.Value) *graph.Value {
	if v.Role == graph.Param {
		return v
	}
	if v.Node != nil && v.Node.Op.Kind() == (device.Reorder{}).Kind() && v.Node.In[0].Role == graph.Param {
		return v.Node.In[0]
	}
	return nil
}

// node compiles one node and the reorders that it needs.
func (c *compiler) node(n *graph.Node) error {
	if len(n.Out) == 1 && paramOf(n.Out[0]) != nil {
		return nil // the readers of a copy of a parameter determine its layout
	}
	if _, ok := n.Op.(device.Reshape); ok && paramOf(n.In[0]) == nil {
		return c.reshape(n)
	}
	if IsExchange(n.Op) {
		return c.exchange(n)
	}
	if mustDecompose(n, c.versions) {
		return c.decompose(n, device.ErrUnsupported)
	}
	in, out := c.request(n)
	k, err := c.kernels.Compile(n.Op, in, out)
	if errors.Is(err, device.ErrUnsupported) {
		if free, changed := c.unpin(n, out); changed {
			k, err = c.kernels.Compile(n.Op, in, free)
		}
	}
	if errors.Is(err, device.ErrUnsupported) {
		return c.decompose(n, err)
	}
	if err != nil {
		return err
	}
	return c.launch(n, k)
}

func (c *compiler) decompose(n *graph.Node, cause error) error {
	nodes, err := decompose(n)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Op.Kind(), errors.Join(cause, err))
	}
	for _, part := range nodes {
		if err := c.node(part); err != nil {
			return fmt.Errorf("as part of %s: %w", n.Op.Kind(), err)
		}
	}
	return nil
}

// request returns the specs with which n is compiled. Inputs have their current layout, and gradients have the layout
// of their values.
func (c *compiler) request(n *graph.Node) (in, out []device.TensorSpec) {
	for _, v := range n.In {
		if paramOf(v) != nil {
			in = append(in, v.Spec().With(device.Any))
		} else {
			in = append(in, c.versions[v][0].spec)
		}
	}
	for _, v := range n.Out {
		out = append(out, v.Spec().With(c.wantedLayout(v)))
	}
	for _, a := range device.Aliases(n.Op) {
		out[a.Out] = in[a.In]
	}
	return in, out
}

func (c *compiler) wantedLayout(v *graph.Value) device.Layout {
	if c.plain[v] {
		return device.Plain
	}
	if v.Follows == nil {
		return device.Any
	}
	if p := paramOf(v.Follows); p != nil {
		if c.fixed == nil || c.fixed.plain {
			return device.Any // a reorder is cheaper than a kernel with a layout that the device did not choose
		}
		i, _ := c.fixed.Find(p.Name)
		return c.fixed.Params[i].Spec.Layout
	}
	return c.versions[v.Follows][0].spec.Layout
}

// unpin replaces the requested layouts of gradients by Any, except for gradients that the host reads. changed reports
// whether unpin replaced a layout.
func (c *compiler) unpin(n *graph.Node, out []device.TensorSpec) (free []device.TensorSpec, changed bool) {
	free = append(free, out...)
	for i, v := range n.Out {
		if v.Follows != nil && !c.plain[v] && free[i].Layout != device.Any {
			free[i], changed = free[i].With(device.Any), true
		}
	}
	return free, changed
}

// launch appends the kernel of n, preceded by the reorders that its operands need.
func (c *compiler) launch(n *graph.Node, k device.Kernel) error {
	l := &launch{name: n.Name, op: n.Op, kernel: k, phase: n.Phase}
	for i, want := range k.In() {
		ver, err := c.operand(n, i, want)
		if err != nil {
			return err
		}
		ver.readers++
		l.in = append(l.in, ver)
	}
	for i, spec := range k.Out() {
		l.out = append(l.out, &version{spec: spec, mem: &storage{bytes: spec.Size(), pinned: c.plain[n.Out[i]]},
			producer: l})
	}
	for _, a := range device.Aliases(n.Op) {
		l.out[a.Out].mem, l.out[a.Out].at = l.in[a.In].mem, l.in[a.In].at
	}
	for i, ver := range l.out {
		c.add(n.Out[i], ver)
	}
	c.step = append(c.step, l)
	return nil
}

// operand returns input i of n in the layout that the kernel needs.
func (c *compiler) operand(n *graph.Node, i int, want device.TensorSpec) (*version, error) {
	v := n.In[i]
	if p := paramOf(v); p != nil {
		return c.paramCopy(p, want), nil
	}
	for _, have := range c.versions[v] {
		if have.spec.Same(want) {
			return have, nil
		}
	}
	have := c.versions[v][0]
	if c.retarget(have, want) {
		return have, nil
	}
	l, err := c.reorder("reorder "+v.Name, have, want, n.Phase)
	if err != nil {
		return nil, err
	}
	c.step = append(c.step, l)
	c.add(v, l.out[0])
	return l.out[0], nil
}

// paramCopy returns parameter p in the layout and type that a kernel needs. resolveParams decides which launch writes
// it.
func (c *compiler) paramCopy(p *graph.Value, want device.TensorSpec) *version {
	for _, u := range c.uses {
		if u.param == p && u.spec.Same(want) {
			return u.version
		}
	}
	u := paramUse{p, &version{spec: want, mem: &storage{bytes: want.Size(), pinned: true}}}
	c.uses = append(c.uses, u)
	return u.version
}

// retarget compiles the producer of a plain tensor again, so that it writes the layout of want directly. This saves a
// reorder. retarget returns false if a launch already reads the tensor, or if the device has no such kernel.
func (c *compiler) retarget(have *version, want device.TensorSpec) bool {
	l := have.producer
	if l == nil || have.readers > 0 || have.mem.pinned || have.spec.Layout != device.Plain || len(l.out) != 1 ||
		want.DType != have.spec.DType {
		return false
	}
	if _, costly := l.op.(device.Coster); costly || len(device.Aliases(l.op)) > 0 {
		return false // a costly kernel has chosen its layout for speed; an alias has the layout of its input
	}
	k, err := c.kernels.Compile(l.op, specsOf(l.in), []device.TensorSpec{want})
	if err != nil || !k.Out()[0].Same(want) {
		return false
	}
	for i, s := range k.In() {
		if !s.Same(l.in[i].spec) {
			return false
		}
	}
	l.kernel, have.spec, have.mem.bytes = k, want, want.Size()
	return true
}

func (c *compiler) reorder(name string, from *version, to device.TensorSpec, phase graph.Phase) (*launch, error) {
	op := device.Reorder{To: to.DType}
	k, err := c.kernels.Compile(op, []device.TensorSpec{from.spec}, []device.TensorSpec{to})
	if err != nil {
		return nil, fmt.Errorf("%s from %v to %v: %w", name, from.spec, to, err)
	}
	if got := k.In()[0]; !got.Same(from.spec) {
		return nil, fmt.Errorf("%s: the device cannot read %v, want %v", name, from.spec, got)
	}
	l := &launch{name: name, op: op, kernel: k, in: []*version{from}, phase: phase}
	l.out = []*version{{spec: k.Out()[0], mem: &storage{bytes: k.Out()[0].Size()}, producer: l}}
	from.readers++
	return l, nil
}

// reshape lets the output share the plain memory of the input. It needs no launch.
func (c *compiler) reshape(n *graph.Node) error {
	want := n.In[0].Spec()
	src, err := c.operand(n, 0, want)
	if err != nil {
		return err
	}
	src.readers++
	src.mem.pinned = src.mem.pinned || c.plain[n.Out[0]]
	c.add(n.Out[0], &version{spec: n.Out[0].Spec(), mem: src.mem, at: src.at, producer: src.producer, readers: 1})
	return nil
}

func specsOf(vs []*version) []device.TensorSpec {
	out := make([]device.TensorSpec, len(vs))
	for i, v := range vs {
		out[i] = v.spec
	}
	return out
}
