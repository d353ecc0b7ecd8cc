package plan

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// network is a graph and the values of its inputs.
type network struct {
	*graph.Graph
	inputs map[string][]float64
}

func compose(t tb, script []int, compute tensor.DType, n int, training bool) network {
	t.Helper()
	g, err := graph.Build(func(g *graph.Graph) {
		if compute == tensor.F64 {
			g.UseF64()
		}
		(&composer{Graph: g, script: script, compute: compute, n: n, used: map[int]bool{}}).classifier(training)
	})
	if err != nil {
		t.Fatal(err)
	}
	w := network{g, map[string][]float64{}}
	for _, in := range g.Inputs {
		v, s := make([]float64, in.Shape.Elements()), random.New(9, in.Name)
		for i := range v {
			v[i] = map[tensor.DType]float64{tensor.U8: 256, tensor.I32: 3, tensor.I64: 1 << 40,
				tensor.U32: 1 << 32}[in.DType] * s.Uniform(uint64(i))
			if in.DType.IsFloat() {
				v[i] = 0.5 + s.Uniform(uint64(i))
			} else {
				v[i] = math.Floor(v[i])
			}
		}
		w.inputs[in.Name] = v
	}
	return w
}

// equalsOracle runs w with the plan of r and with the oracle. It compares every output, gradient and state. run is
// r.run. If the copies of parameters are up to date, it can be r.microBatch.
func (r *rig) equalsOracle(w network, training bool, run func(backward bool)) {
	r.t.Helper()
	given := map[string][]byte{}
	for _, in := range w.Inputs {
		given[in.Name] = reference.Encode(in.DType, w.inputs[in.Name])
		r.input(in.Name, w.inputs[in.Name])
	}
	params := r.state.Params
	for _, p := range params.Params {
		given[p.Name] = r.readBytes(r.state.Values, p)
	}
	for _, p := range params.States {
		given[p.Name] = r.readBytes(r.state.States, p)
	}
	o := newOracle(r.t, w.Graph, given)
	run(training)
	for _, out := range w.Outputs {
		r.same("output "+out.Name, out.Value.DType, r.outputBytes(out.Name), o.bytes(out.Value))
	}
	for _, gr := range w.Gradients {
		i, _ := params.Find(gr.Param.Name)
		r.same("gradient of "+gr.Param.Name, gr.Param.DType, r.readBytes(r.state.Grads, params.Params[i]),
			o.bytes(gr.Value))
	}
	for i, p := range params.States {
		r.same("state "+p.Name, p.Spec.DType, r.readBytes(r.state.States, p), o.bytes(w.States[i]))
	}
	for _, p := range params.Params {
		r.same("parameter "+p.Name, p.Spec.DType, r.readBytes(r.state.Values, p), given[p.Name])
	}
}

// same requires equal numbers. 0 equals -0, because a product with a mask and a selection by a mask differ in the sign
// of zero. NaN equals NaN.
func (r *rig) same(what string, dt tensor.DType, got, want []byte) {
	r.t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	a, b := reference.Decode(dt, got), reference.Decode(dt, want)
	for i := range b {
		if a[i] != b[i] && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
			r.t.Fatalf("%s[%d]: got %v, want %v", what, i, a[i], b[i])
		}
	}
}

// fusedBatchNorm reports whether op and its decomposition give bit-equal results. It assumes that no intermediate
// tensor is rounded to 16 bits.
func fusedBatchNorm(op device.Op) bool {
	switch o := op.(type) {
	case device.BatchNormApply:
		return o.ReLU || o.Add
	case device.BatchNormDiffReduce:
		return o.ReLU || o.Add || o.Two
	case device.BatchNormDiffApply:
		return o.ReLU
	case device.GlobalAvgPool:
		return true
	}
	return false
}

// anyDevice chooses a device at random: the reference device, or a particular device with random preferences.
func anyDevice(t *rapid.T, compute tensor.DType) device.Device {
	if rapid.IntRange(0, 3).Draw(t, "reference device") == 0 {
		return reference.New()
	}
	d := newParticular()
	d.taste = moody(rapid.Uint64().Draw(t, "taste"))
	d.inPlace = rapid.Bool().Draw(t, "in place")
	d.workspace = rapid.SampledFrom([]int64{0, 1, 64, 200}).Draw(t, "workspace")
	unfused := compute != tensor.BF16 && rapid.Bool().Draw(t, "without fused ops")
	stubborn := rapid.Bool().Draw(t, "refuses to write layouts that it did not choose")
	d.refuse = func(op device.Op, in, out []device.TensorSpec) bool {
		if _, moves := op.(device.Reorder); moves {
			return false
		}
		for _, s := range out {
			if stubborn && s.Layout >= device.FirstPrivate {
				return true
			}
		}
		return unfused && fusedBatchNorm(op)
	}
	return d
}

// A device may prefer any layouts. The results of a plan must be bit-equal to those of the oracle, and live tensors
// must not share memory. A second run starts with other conditions: a used arena, changed running statistics, and the
// copies of parameters of the first run.
func TestPlansEqualTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		compute := rapid.SampledFrom([]tensor.DType{tensor.F32, tensor.F64, tensor.BF16}).Draw(t, "compute")
		script := scripts().Draw(t, "script")
		n, other := rapid.IntRange(1, 4).Draw(t, "samples"), rapid.IntRange(1, 4).Draw(t, "other samples")
		w := compose(t, script, compute, n, true)
		r := newRig(t, anyDevice(t, compute), w.Graph)
		r.apart()
		r.equalsOracle(w, true, r.run)
		r.equalsOracle(w, true, r.microBatch)

		// Plans for another batch size, and for evaluation, use the same parameters.
		for _, training := range []bool{true, false} {
			w := compose(t, script, compute, other, training)
			second := r.compile(w.Graph)
			second.apart()
			second.equalsOracle(w, training, second.run)
			second.release()
		}
		r.close()
	})
}

// tenancy is the lifetime of one tensor, according to the launches of a plan. It begins with the launch that first
// writes the memory of the tensor. It ends with the launch that last reads this memory.
type tenancy struct {
	version     *version
	from, until int
}

// apart requires that tensors of the arena do not overlap if they are needed at the same time. The reads and writes of
// the launches determine when a tensor is needed. If two tensors have the same storage, the last launch that reads the
// first one may overwrite it with the second one.
func (r *rig) apart() {
	r.t.Helper()
	var launches []*launch
	for _, part := range [][]*launch{r.plan.prepare, r.plan.forward, r.plan.backward} {
		launches = append(launches, part...)
	}
	end := len(launches)
	// The keys are the storages that the compiler assigned. A reshaped value has the storage of its source.
	tenants := map[*storage]*tenancy{}
	note := func(v *version, at int) *tenancy {
		if v.mem.root().buffer != inArena {
			return &tenancy{}
		}
		if tenants[v.mem] == nil {
			tenants[v.mem] = &tenancy{version: v, from: at, until: at}
		}
		tenants[v.mem].until = max(tenants[v.mem].until, at)
		return tenants[v.mem]
	}
	for _, in := range r.plan.inputs {
		note(in, -1) // the host writes the inputs before the first launch
	}
	for i, l := range launches {
		for _, v := range l.in {
			note(v, i)
		}
		for _, v := range l.out {
			note(v, i)
			if i < len(r.plan.prepare) {
				note(v, end) // later runs use the copies of parameters again
			}
		}
		if l.workspace != nil {
			note(&version{mem: l.workspace}, i)
		}
	}
	for _, out := range r.plan.outputs {
		note(out, end)
	}
	var all []*tenancy
	for _, v := range tenants {
		all = append(all, v)
		if at := v.version.mem.root(); at.offset < 0 || at.offset+at.bytes > r.plan.ArenaBytes() {
			r.t.Errorf("%v lies at [%d, %d) of an arena of %d bytes", v.version.spec, at.offset, at.offset+at.bytes,
				r.plan.ArenaBytes())
		}
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if clash(a, b) || clash(b, a) {
				r.t.Errorf("%s: %v and %v share memory but are alive at [%d, %d] and [%d, %d]", r.dev.Info().Name,
					a.version.spec, b.version.spec, a.from, a.until, b.from, b.until)
			}
		}
	}
}

// clash reports whether b is written to the memory of a while a is still needed.
func clash(a, b *tenancy) bool {
	x, y := a.version.mem.root(), b.version.mem.root()
	if x.bytes == 0 || y.bytes == 0 || x.offset >= y.offset+y.bytes || y.offset >= x.offset+x.bytes {
		return false
	}
	if x == y { // b overwrites a in place
		return a.from <= b.from && b.from < a.until
	}
	return a.from <= b.from && b.from <= a.until
}

// The storages are random, and belong to no graph.
func TestAssignKeepsTensorsApartInAsFewBytesAsTheyEndAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors := rapid.SliceOf(rapid.Custom(func(t *rapid.T) *storage {
			first := rapid.IntRange(0, 30).Draw(t, "first")
			return &storage{bytes: rapid.Int64Range(0, 1000).Draw(t, "bytes"), first: first,
				last: first + rapid.IntRange(0, 10).Draw(t, "length")}
		})).Draw(t, "tensors")
		total := assign(tensors)
		var end, sum int64
		busiest := map[int]int64{}
		for i, a := range tensors {
			if a.offset < 0 || a.offset%alignBytes != 0 {
				t.Errorf("tensor %d: offset %d, want a multiple of %d", i, a.offset, alignBytes)
			}
			end, sum = max(end, a.offset+alignUp(a.bytes)), sum+alignUp(a.bytes)
			for at := a.first; at <= a.last; at++ {
				busiest[at] += alignUp(a.bytes)
			}
			for j, b := range tensors[:i] {
				together := a.first <= b.last && b.first <= a.last
				if together && a.offset < b.offset+b.bytes && b.offset < a.offset+a.bytes {
					t.Errorf("tensors %d and %d, both alive, lie at [%d, %d) and [%d, %d)", j, i, b.offset,
						b.offset+b.bytes, a.offset, a.offset+a.bytes)
				}
			}
		}
		if total != end {
			t.Errorf("total: got %d bytes, want %d, where the last tensor ends", total, end)
		}
		for at, need := range busiest {
			if total < need {
				t.Errorf("total: got %d bytes, less than the %d that are alive at %d", total, need, at)
			}
		}
		if total > sum {
			t.Errorf("total: got %d bytes, more than the sum of all tensors, %d", total, sum)
		}
	})
}

func TestAssignFillsTheTightestGap(t *testing.T) {
	for _, c := range []struct {
		name    string
		tensors []storage
		offsets []int64
		total   int64
	}{
		{"nothing", nil, nil, 0},
		{"sizes are rounded up to cache lines",
			[]storage{{bytes: 1, first: 0, last: 1}, {bytes: 65, first: 1, last: 1}}, []int64{128, 0}, 192},
		{"one after the other share", []storage{{bytes: 64, first: 0, last: 1}, {bytes: 64, first: 2, last: 3}},
			[]int64{0, 0}, 64},
		{"alive in one launch do not", []storage{{bytes: 64, first: 0, last: 2}, {bytes: 64, first: 2, last: 3}},
			[]int64{0, 64}, 128},
		// At launch 5, two gaps are free: 256 bytes of the second storage, and 128 bytes of the fourth one. The last
		// storage, of 128 bytes, must use the smaller gap.
		{"the tighter of two gaps", []storage{
			{bytes: 320, first: 0, last: 9}, {bytes: 256, first: 0, last: 4}, {bytes: 192, first: 0, last: 9},
			{bytes: 128, first: 0, last: 4}, {bytes: 128, first: 0, last: 9},
			{bytes: 100, first: 5, last: 9},
		}, []int64{0, 320, 576, 768, 896, 768}, 1024},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tensors []*storage
			for i := range c.tensors {
				tensors = append(tensors, &c.tensors[i])
			}
			if got := assign(tensors); got != c.total {
				t.Errorf("total: got %d bytes, want %d", got, c.total)
			}
			var got []int64
			for _, s := range tensors {
				got = append(got, s.offset)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.offsets) {
				t.Errorf("offsets: got %v, want %v", got, c.offsets)
			}
		})
	}
}
