package devicetest

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Caps describes the abilities of a device.
type Caps struct {
	// Types lists the activation types that every op must support. The suite does not run cases of other types.
	Types []tensor.DType
	// Brief lists those types in Types whose cases run only once, under policy Free, to save time. It is for devices
	// whose kernels for two types differ only in the conversion of values: the second type has the same layouts, so
	// further runs would test the same code.
	Brief []tensor.DType
	// Lacks lists kinds of ops that the device leaves to the planner's decomposition, or for which the planner uses
	// other ops of the device. The suite does not run cases whose field needs names such an op. If the device returns
	// ErrUnsupported for such an op in another case, the suite skips the case with a log line. ErrUnsupported for
	// another op is a failure.
	Lacks []string
	// NoValues is true for a device that computes no values (the null device). The suite then checks only shapes,
	// events and errors.
	NoValues bool
	// Threads is true for a device that uses Options.Threads. The suite then compares the results with several thread
	// counts.
	Threads bool
}

// Opener opens the device under test. The suite closes it.
type Opener func(t conformance.TB, opts device.Options) device.Device

// Run checks a device.
func Run(t conformance.T, open Opener, caps Caps) {
	// The suite allocates many short-lived buffers. With the default setting and a heap of a few MB, garbage collection
	// would take a third of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	t.Run("values", func(t conformance.T) { runValues(t, open, caps) })
	t.Run("memory", func(t conformance.T) { runMemory(t, open, caps) })
	t.Run("streams", func(t conformance.T) { runStreams(t, open, caps) })
	t.Run("arguments", func(t conformance.T) { runArguments(t, open, caps) })
	if !caps.NoValues {
		t.Run("layouts", func(t conformance.T) { runLayouts(t, open, caps) })
		if caps.Threads {
			t.Run("threads", func(t conformance.T) { runThreads(t, open, caps) })
		}
	}
}

// opened opens a device for one test. At the end of the test it checks that all memory is freed, and closes the device.
func opened(t conformance.T, open Opener, opts device.Options) device.Device {
	t.Helper()
	dev := open(t, opts)
	t.Cleanup(func() {
		if allocated, _ := dev.Memory(); allocated != 0 {
			t.Errorf("%d bytes of device memory were not given back", allocated)
		}
		if err := dev.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return dev
}

// kind selects the element type of an input.
type kind int

const (
	float kind = iota // an input of type Types.Float
	param             // an input of type Types.Param
	fixed             // an input of type input.dtype
)

// input describes how one operand is generated.
type input struct {
	kind  kind
	dtype tensor.DType // type of an input of kind fixed
	shape tensor.Shape
	gen   Generator
}

func floats(gen Generator, shape ...int) input { return input{kind: float, shape: shape, gen: gen} }
func params(gen Generator, shape ...int) input { return input{kind: param, shape: shape, gen: gen} }
func fixedType(dt tensor.DType, gen Generator, shape ...int) input {
	return input{kind: fixed, dtype: dt, shape: shape, gen: gen}
}

var symmetric = Uniform(-1, 1)

// valueCase is one computation whose outputs are compared with the truth.
type valueCase struct {
	name   string
	inputs []input
	// run is the computation: one op, or a chain of ops with saved state.
	run       func(r *Runner, in []Operand) []Operand
	tolerance tolerance
	types     []tensor.DType // types that the case runs with; nil: every type
	chain     bool           // tensors of type Types.Float are stored between ops
	nan       bool           // inputs contain NaN
	// terms returns the norm of the terms whose sum is output i; nil: terms cannot cancel. It is necessary because a
	// sum that is smaller than its terms still has the rounding errors of the terms.
	terms func(in []Tensor, i int) float64
	needs string // kind of op that the case tests, if a device may lack it
	large bool   // runs only under policy Free, to save time; smaller cases of the op run under every policy
}

// one returns the computation of a single op. The op is the same for all types.
func one(op device.Op) func(*Runner, []Operand) []Operand {
	return func(r *Runner, in []Operand) []Operand { return r.Do(op, in...) }
}

// materialize generates the inputs of a case, each rounded to the type that a device with types ty stores.
func (c valueCase) materialize(ty Types) []Tensor {
	out := make([]Tensor, len(c.inputs))
	for i, in := range c.inputs {
		dt := ty.of(in)
		out[i] = Random(dt, in.shape, seedOf(c.name)+uint64(i), in.gen)
		if dt.IsFloat() {
			out[i].Values = reference.Decode(dt, reference.Encode(dt, out[i].Values))
		}
	}
	return out
}

func (ty Types) of(in input) tensor.DType {
	switch in.kind {
	case float:
		return ty.Float
	case param:
		return ty.Param
	}
	return in.dtype
}

// on runs a case on a device with types ty and the given values.
func (c valueCase) on(t conformance.T, dev device.Device, caps Caps, ty Types, policy Policy,
	values []Tensor) []Tensor {
	t.Helper()
	out, _ := c.observed(t, dev, caps, ty, policy, values)
	return out
}

// observed is like on, and also reports whether a kernel had a tensor in another layout than plain.
func (c valueCase) observed(t conformance.T, dev device.Device, caps Caps, ty Types, policy Policy,
	values []Tensor) (out []Tensor, elsewhere bool) {
	t.Helper()
	r := NewRunner(t, dev)
	defer r.Close()
	r.Types, r.Policy, r.Lacks, r.NoValues, r.AnyPadding = ty, policy, caps.Lacks, caps.NoValues, c.nan
	in := make([]Operand, len(values))
	for i, v := range values {
		v.Spec.DType = ty.of(c.inputs[i])
		in[i] = r.Upload(v)
	}
	for _, o := range c.run(r, in) {
		out = append(out, r.Download(o))
	}
	return out, r.elsewhere
}

// alike requires that two runs have bit-equal results.
func alike(got, want []Tensor) error {
	for i := range got {
		if err := equal(got[i], want[i]); err != nil {
			return fmt.Errorf("output %d differs from the first: %w", i, err)
		}
	}
	return nil
}

func runValues(t conformance.T, open Opener, caps Caps) {
	dev := opened(t, open, device.Options{})
	oracle := reference.New()
	for _, g := range valueTables() {
		t.Run(g.name, func(t conformance.T) {
			for _, c := range g.cases {
				for _, dt := range caps.Types {
					if slices.Contains(caps.Lacks, c.needs) {
						continue
					}
					if c.types == nil || slices.Contains(c.types, dt) {
						t.Run(fmt.Sprintf("%s/%v", c.name, dt), func(t conformance.T) {
							c.check(t, dev, oracle, caps, dt)
						})
					}
				}
			}
		})
	}
}

// check runs one case with one type under every policy, and compares the results of Free with those of a second run. A
// type in Caps.Brief has neither other policies nor a second run.
//
// If all tensors have the plain layout under Free and Settled, the policies Carried and Pinned do not run. The requests
// of Settled are then those of Pinned, and Settled also compiles the kernels for the requests of Carried. Kernels with
// equal layouts usually have equal results, so the run of Settled then also serves as the second run.
func (c valueCase) check(t conformance.T, dev, oracle device.Device, caps Caps, dt tensor.DType) {
	values, policies, brief := c.materialize(typesFor(dt)), numPolicies, slices.Contains(caps.Brief, dt)
	if c.large || brief {
		policies = Free + 1
	}
	if caps.NoValues {
		for policy := range policies {
			c.on(t, dev, caps, typesFor(dt), policy, values)
		}
		return
	}
	oracleIn := func(dt tensor.DType) func() []Tensor {
		var out []Tensor
		done := false // not sync.OnceValue, which panics if c.on ends the test
		return func() []Tensor {
			if !done {
				out = c.on(t, oracle, Caps{}, typesFor(dt), Pinned, values)
				done = true
			}
			return out
		}
	}
	truth, plain := oracleIn(tensor.F64), oracleIn(tensor.F32)
	typed := oracleIn(dt)
	switch dt {
	case tensor.F64:
		typed = truth
	case tensor.F32:
		typed = plain
	}
	judged := func(policy Policy) ([]Tensor, bool) {
		got, elsewhere := c.observed(t, dev, caps, typesFor(dt), policy, values)
		if len(got) == 0 {
			t.Fatalf("layouts %v: got no outputs", policy)
		}
		for i := range got {
			output := func(all func() []Tensor) func() Tensor {
				return func() Tensor {
					want := all()
					if len(got) != len(want) {
						t.Fatalf("layouts %v: got %d outputs, want %d", policy, len(got), len(want))
					}
					return want[i]
				}
			}
			terms := 0.0
			if c.terms != nil {
				terms = c.terms(values, i)
			}
			want := expected{typed: output(typed), plain: output(plain), truth: output(truth)}
			if err := c.tolerance.judge(got[i], want, c.chain, terms); err != nil {
				t.Errorf("layouts %v: output %d: %v", policy, i, err)
			}
		}
		return got, elsewhere
	}
	first, elsewhere := judged(Free)
	var again []Tensor
	if policies > 1 {
		settled, other := judged(Settled)
		if elsewhere || other {
			judged(Carried)
			judged(Pinned)
		} else if alike(settled, first) == nil {
			again = settled
		}
		judged(Shared)
	}
	if !brief {
		if again == nil {
			again = c.on(t, dev, caps, typesFor(dt), Free, values)
		}
		if err := alike(again, first); err != nil {
			t.Errorf("second run, %v", err)
		}
	}
	if allocated, _ := dev.Memory(); allocated != 0 {
		t.Errorf("%d bytes of device memory were not given back", allocated)
	}
}

// table holds the cases of one op family.
type table struct {
	name  string
	cases []valueCase
}

func valueTables() []table {
	return []table{
		{"conv2d", convCases()},
		{"linear", linearCases()},
		{"batch_norm", batchNormCases()},
		{"pool", poolCases()},
		{"elementwise", elementwiseCases()},
		{"move", moveCases()},
		{"loss", lossCases()},
		{"transformer", transformerCases()},
		{"optim", optimCases()},
		{"chain", chainCases()},
		{"nan", nanCases()},
	}
}
