package plan

import (
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
)

// finish decides which tensors share memory, and assigns their offsets.
func (c *compiler) finish(params *Params) *Plan {
	all := slices.Concat(c.prepare, c.step)
	c.lifetimes(all)
	c.shareInPlace(all)
	var tensors []*storage
	seen := map[*storage]bool{}
	for _, l := range all {
		for _, v := range slices.Concat(l.in, l.out) {
			if s := v.mem.root(); s.buffer == inArena && !seen[s] {
				seen[s] = true
				tensors = append(tensors, s)
			}
		}
		if l.workspace != nil {
			tensors = append(tensors, l.workspace)
		}
	}
	for _, in := range c.inputs() { // an input without readers still has memory, so that the host may write it
		if s := c.versions[in][0].mem.root(); !seen[s] {
			tensors = append(tensors, s)
		}
	}
	p := &Plan{cache: c.cache, kernels: c.kernels, params: params, prepare: c.prepare}
	p.arenaBytes = assign(tensors)
	c.measureUsage(p, all, tensors)
	split := slices.IndexFunc(c.step, func(l *launch) bool { return l.phase == graph.Backward })
	if split < 0 {
		split = len(c.step)
	}
	p.forward, p.backward = c.step[:split], c.step[split:]
	p.inputs, p.outputs = map[string]*version{}, map[string]*version{}
	for _, in := range c.inputs() {
		p.inputs[in.Name] = c.versions[in][0]
		p.inputNames = append(p.inputNames, in.Name)
	}
	for _, o := range c.outputs() {
		p.outputs[o.Name] = c.versions[o.Value][0]
	}
	return p
}

// inputs returns the plan's inputs. A plan without samples has only the inputs that it reads.
func (c *compiler) inputs() []*graph.Value {
	if !c.idle {
		return c.g.Inputs
	}
	var used []*graph.Value
	for _, in := range c.g.Inputs {
		if c.versions[in][0].readers > 0 {
			used = append(used, in)
		}
	}
	return used
}

// outputs returns the plan's outputs. A plan without samples has none.
func (c *compiler) outputs() []graph.Output {
	if c.idle {
		return nil
	}
	return c.g.Outputs
}

// lifetimes sets the first and last launch during which each storage holds data.
func (c *compiler) lifetimes(all []*launch) {
	seen := map[*storage]bool{}
	touch := func(s *storage, at int) {
		if !seen[s] {
			seen[s] = true
			s.first, s.last = at, at
			if s.pinned {
				s.first = 0
			}
		}
		s.last = max(s.last, at)
	}
	for i, l := range all {
		for _, v := range l.in {
			touch(v.mem, i)
		}
		for _, v := range l.out {
			touch(v.mem, i)
		}
		if l.kernel == nil {
			continue
		}
		if bytes := l.kernel.Workspace(); bytes > 0 {
			l.workspace = &storage{bytes: bytes, first: i, last: i}
		}
	}
	keep := func(v *version) { v.mem.last = len(all) }
	for _, o := range c.outputs() {
		keep(c.versions[o.Value][0])
	}
	for _, in := range c.inputs() { // an input keeps its value for all runs until the host overwrites it
		v := c.versions[in][0]
		touch(v.mem, 0)
		keep(v)
	}
	for _, l := range c.prepare { // all micro-batches use the copies of parameters
		keep(l.out[0])
	}
}

// shareInPlace lets an output reuse the memory of an input that no later launch reads.
func (c *compiler) shareInPlace(all []*launch) {
	for i, l := range all {
		if l.kernel == nil {
			continue
		}
		pairs := l.kernel.InPlace()
		taken := map[*storage]bool{} // inputs whose memory another output of this launch reuses
		for _, a := range pairs {
			from, to := l.in[a.In].mem.root(), l.out[a.Out].mem.root()
			if from == to || from.buffer != inArena || to.buffer != inArena || from.pinned || to.pinned ||
				from.bytes != to.bytes || from.last != i || to.first != i || taken[from] ||
				l.readsBeside(from, a, pairs) {
				continue
			}
			from.last = to.last
			to.shares = from
			taken[from] = true
		}
	}
}

// readsBeside reports whether l reads mem through an input whose memory output a.Out may not reuse.
func (l *launch) readsBeside(mem *storage, a device.Alias, pairs []device.Alias) bool {
	for i, in := range l.in {
		if in.mem.root() == mem && !slices.Contains(pairs, device.Alias{Out: a.Out, In: i}) {
			return true
		}
	}
	return false
}

// assign gives disjoint ranges to tensors that are alive at the same time, and returns the number of bytes needed. It
// places tensors from the largest to the smallest, each into the smallest gap that holds it.
func assign(tensors []*storage) int64 {
	order := slices.Clone(tensors)
	slices.SortStableFunc(order, func(a, b *storage) int {
		switch {
		case a.bytes > b.bytes:
			return -1
		case a.bytes < b.bytes:
			return 1
		}
		return a.first - b.first
	})
	placed := make([]span, 0, len(order)) // sorted by offset
	total := int64(0)
	for _, t := range order {
		t.offset = bestGap(placed, t)
		at, _ := slices.BinarySearchFunc(placed, t.offset, func(p span, offset int64) int {
			if p.offset <= offset {
				return -1
			}
			return 1
		})
		own := span{t.offset, t.offset + alignUp(t.bytes), t.first, t.last}
		placed = slices.Insert(placed, at, own)
		total = max(total, own.end)
	}
	return total
}

// span is the place of a tensor in memory and in time. Each tensor is compared with all placed tensors, so the number
// of comparisons is quadratic in the number of layers. A list of spans is contiguous in memory, which makes the
// comparisons fast.
type span struct {
	offset, end int64 // bytes
	first, last int   // launches
}

// bestGap returns the offset of the smallest gap that holds t, between the placed tensors that are alive at the same
// time as t. If no gap is large enough, it returns the end of these tensors.
func bestGap(placed []span, t *storage) int64 {
	need, end, first, last := alignUp(t.bytes), int64(0), t.first, t.last
	best, bestSize := int64(-1), int64(0)
	for i := range placed {
		p := &placed[i]
		if p.last < first || p.first > last {
			continue
		}
		if gap := p.offset - end; gap >= need && (best < 0 || gap < bestSize) {
			best, bestSize = end, gap
		}
		end = max(end, p.end)
	}
	if best >= 0 {
		return best
	}
	return end
}
