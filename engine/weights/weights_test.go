package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func info(name string, shape ...int) checkpoint.Info {
	return checkpoint.Tensor{Name: name, DType: tensor.F32, Shape: shape}.Info()
}

// model returns the tensors of a convolution, a batch normalisation and a classifier with 3 classes.
func model() []checkpoint.Info {
	return []checkpoint.Info{info("conv.weight", 2, 1, 1, 1), info("bn.weight", 2), info("bn.running_mean", 2),
		info("fc.weight", 3, 2), info("fc.bias", 3)}
}

// zeros returns a tensor with zeros.
func zeros(name string, d tensor.DType, shape ...int) checkpoint.Tensor {
	return checkpoint.Tensor{Name: name, DType: d, Shape: shape,
		Data: make([]byte, tensor.Shape(shape).Elements()*d.Size())}
}

func file(t *testing.T, tensors ...checkpoint.Tensor) *checkpoint.File {
	t.Helper()
	var b bytes.Buffer
	if err := checkpoint.Write(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.NewFile(bytes.NewReader(b.Bytes()), int64(b.Len()), "foreign.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// foreign returns the tensors of the model in the form in which another program saves them. change may modify them.
func foreign(d tensor.DType, prefix string, change func(map[string]checkpoint.Tensor)) []checkpoint.Tensor {
	all := map[string]checkpoint.Tensor{}
	for _, m := range model() {
		all[m.Name] = zeros(m.Name, d, m.Shape...)
	}
	all["bn.num_batches_tracked"] = zeros("", tensor.I64)
	if change != nil {
		change(all)
	}
	var list []checkpoint.Tensor
	for name, t := range all {
		t.Name = prefix + name
		list = append(list, t)
	}
	return list
}

func TestMatch(t *testing.T) {
	classes := func(n int) func(map[string]checkpoint.Tensor) {
		return func(m map[string]checkpoint.Tensor) {
			m["fc.weight"], m["fc.bias"] = zeros("", tensor.F32, n, 2), zeros("", tensor.F32, n)
		}
	}
	drop := func(names ...string) func(map[string]checkpoint.Tensor) {
		return func(m map[string]checkpoint.Tensor) {
			for _, n := range names {
				delete(m, n)
			}
		}
	}
	both := []string{"fc.bias", "fc.weight"}
	for _, c := range []struct {
		name   string
		file   []checkpoint.Tensor
		head   string   // value of Options.InitOf
		rename []string // value of Options.Renames
		drop   []string // value of Options.Drops
		fresh  []string // tensors that must keep their initial values
		notes  string   // part of the notes
		fails  string   // part of the error; "": no error
	}{
		{name: "the same", file: foreign(tensor.F32, "", nil), notes: "1 batch counters"},
		{name: "without counters", file: foreign(tensor.F32, "", drop("bn.num_batches_tracked"))},
		{name: "bf16", file: foreign(tensor.BF16, "", nil), notes: "5 tensors converted from bf16"},
		{name: "wrapped twice", file: foreign(tensor.F32, "module._orig_mod.", nil),
			notes: `prefix "_orig_mod." removed from all names`},
		{name: "wrapped in part", file: append(foreign(tensor.F32, "module.", drop("fc.bias")),
			zeros("fc.bias", tensor.F32, 3)), fails: "module.bn.weight: only in the file"},
		{name: "other classes", file: foreign(tensor.F32, "", classes(5)), fresh: both},
		{name: "other classes, head kept", file: foreign(tensor.F32, "", classes(5)), head: HeadKeep,
			fails: "fc.weight: file F32 (5, 2), model F32 (3, 2)"},
		{name: "the same, head new", file: foreign(tensor.F32, "", nil), head: HeadNew, fresh: both},
		{name: "no head", file: foreign(tensor.F32, "", drop(both...)), fresh: both},
		{name: "no head, head new", file: foreign(tensor.F32, "", drop(both...)), head: HeadNew, fresh: both},
		{name: "no head, head kept", file: foreign(tensor.F32, "", drop(both...)), head: HeadKeep,
			fails: "fc.bias: only in the model"},
		{name: "head over other features", file: foreign(tensor.F32, "", func(m map[string]checkpoint.Tensor) {
			m["fc.weight"] = zeros("", tensor.F32, 5, 7)
			m["fc.bias"] = zeros("", tensor.F32, 5)
		}), fresh: nil, fails: "fc.weight: file F32 (5, 7), model F32 (3, 2)"},
		{name: "another shape", file: foreign(tensor.F32, "", func(m map[string]checkpoint.Tensor) {
			m["conv.weight"] = zeros("", tensor.F32, 2, 1, 3, 3)
		}),
			fails: "conv.weight: file F32 (2, 1, 3, 3), model F32 (2, 1, 1, 1)"},
		{name: "whole numbers", file: foreign(tensor.F32, "", func(m map[string]checkpoint.Tensor) {
			m["bn.weight"] = zeros("", tensor.I32, 2)
		}), fails: "bn.weight: file I32 (2)"},
		{name: "one too many", file: append(foreign(tensor.F32, "", nil), zeros("bn2.num_batches_tracked", tensor.I64)),
			fails: "bn2.num_batches_tracked: only in the file"},
		{name: "one missing", file: foreign(tensor.F32, "", drop("bn.running_mean")),
			fails: "bn.running_mean: only in the model"},
		{name: "renamed", file: foreign(tensor.F32, "net.", nil), rename: []string{`^net\.=`},
			notes: `6 tensors renamed by "^net\\.="`},
		{name: "renamed by groups", file: foreign(tensor.F32, "", func(m map[string]checkpoint.Tensor) {
			m["classifier.1.weight"], m["classifier.1.bias"] = m["fc.weight"], m["fc.bias"]
			delete(m, "fc.weight")
			delete(m, "fc.bias")
		}), rename: []string{`^classifier\.1\.(.*)$=fc.$1`}, notes: "2 tensors renamed"},
		{name: "a rule without effect", file: foreign(tensor.F32, "", nil), rename: []string{"^nothing="},
			fails: "matches no name"},
		{name: "two become one", file: foreign(tensor.F32, "", nil), rename: []string{`^(fc|bn)\.weight=x`},
			fails: `would both get the name "x"`},
		{name: "averaged", file: append(foreign(tensor.F32, "module.", nil), zeros("n_averaged", tensor.I64)),
			notes: "counter n_averaged of an averaged model left out\nprefix \"module.\" removed"},
		{name: "a list named as the counter", file: append(foreign(tensor.F32, "", nil),
			zeros("n_averaged", tensor.I64, 2)), fails: "n_averaged: only in the file"},
		{name: "contrastive learning", file: append(foreign(tensor.F32, "", nil), zeros("queue", tensor.F32, 4, 2),
			zeros("queue_ptr", tensor.I64, 1)), drop: []string{"^queue"},
			notes: `2 tensors left out by "^queue": queue, queue_ptr`},
		{name: "dropped before the renaming", file: append(foreign(tensor.F32, "q.", nil),
			zeros("k.bn.weight", tensor.F32, 2)), drop: []string{`^k\.`}, rename: []string{`^q\.=`},
			notes: "1 tensors left out"},
		{name: "a dropped tensor that the model needs", file: foreign(tensor.F32, "", nil),
			drop: []string{"^bn\\.weight$"}, fails: "bn.weight: only in the model"},
		{name: "a dropped head", file: foreign(tensor.F32, "", nil), drop: []string{"^fc\\."}, fresh: both},
		{name: "a drop without effect", file: foreign(tensor.F32, "", nil), drop: []string{"queue"},
			fails: `drop "queue": the pattern matches no name`},
		{name: "numbers of eight bit", file: append(foreign(tensor.F32, "", nil), zeros("x", tensor.U8, 3)),
			drop: []string{"^x$"}, notes: "1 tensors left out"},
		{name: "empty", fails: "5 tensors differ", head: HeadKeep},
	} {
		o := Options{Head: "fc", InitOf: c.head}
		for _, text := range c.rename {
			r, err := ParseRename(text)
			if err != nil {
				t.Fatal(err)
			}
			o.Renames = append(o.Renames, r)
		}
		var err error
		if o.Drops, err = ParseDrops(c.drop); err != nil {
			t.Fatal(err)
		}
		fit, err := Match(file(t, c.file...), model(), o)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) ||
				!errors.As(err, new(*checkpoint.MismatchError)) && !errors.As(err, new(*RenameError)) {
				t.Errorf("%s: got %v, want an error with %q", c.name, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		fresh, why := fit.Replaced()
		if !slices.Equal(fresh, c.fresh) || (why != "") != (c.fresh != nil) ||
			!strings.Contains(strings.Join(fit.Notes(), "\n"), c.notes) {
			t.Errorf("%s: got %v (%s), notes %q; want %v, %q", c.name, fresh, why, fit.Notes(), c.fresh, c.notes)
		}
		for _, m := range model() {
			found, err := fit.ReadInto(m, make([]byte, m.Bytes()))
			if err != nil || found == slices.Contains(c.fresh, m.Name) {
				t.Errorf("%s: %s: found %v, %v", c.name, m.Name, found, err)
			}
		}
	}
}

func TestParseRenameRefusesWhatIsNoRule(t *testing.T) {
	for _, text := range []string{"", "abc", "=x", "(=x"} {
		if _, err := ParseRename(text); !errors.As(err, new(*RenameError)) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestOnlyExtraTensorsCanBeDropped(t *testing.T) {
	if _, err := ParseDrops([]string{"("}); !errors.As(err, new(*RenameError)) ||
		!strings.Contains(err.Error(), `drop "("`) {
		t.Errorf("got %v", err)
	}
	extra := append(foreign(tensor.F32, "", nil), zeros("queue", tensor.F32, 4))
	_, more := Match(file(t, extra...), model(), Options{Head: "fc"})
	_, less := Match(file(t, extra[1:]...), model(), Options{Head: "fc", InitOf: HeadKeep})
	if !OnlyExtra(more) || OnlyExtra(nil) || less != nil && strings.Contains(less.Error(), "only in the model") &&
		OnlyExtra(less) {
		t.Errorf("got %v and %v", more, less)
	}
}

func TestValuesComeOutOfAllTypesAndNotFiniteOnesAreRefused(t *testing.T) {
	for _, c := range []struct {
		d     tensor.DType
		put   func(v float64) []byte
		large float64 // a value beyond the range of f32; 0 if the type has none
	}{
		{tensor.F64, func(v float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)) },
			1e300},
		{tensor.F32, func(v float64) []byte {
			return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
		}, 0},
		{tensor.BF16, func(v float64) []byte {
			return binary.LittleEndian.AppendUint16(nil, tensor.BF16FromF32(float32(v)))
		}, 0},
		{tensor.F16, func(v float64) []byte {
			return binary.LittleEndian.AppendUint16(nil, tensor.F16FromF32(float32(v)))
		}, 0},
	} {
		values := []float64{1.5, -0.25, 0, c.large, math.NaN(), math.Inf(-1)}
		for i, bad := range values {
			if i == 3 && bad == 0 {
				continue
			}
			w := checkpoint.Tensor{Name: "w", DType: c.d, Shape: tensor.Shape{2},
				Data: append(c.put(1.5), c.put(bad)...)}
			fit, err := Match(file(t, w), []checkpoint.Info{info("w", 2)}, Options{Head: "fc"})
			if err != nil {
				t.Fatal(err)
			}
			dst := make([]byte, 8)
			_, err = fit.ReadInto(info("w", 2), dst)
			if i < 3 {
				a, b := math.Float32frombits(binary.LittleEndian.Uint32(dst)),
					math.Float32frombits(binary.LittleEndian.Uint32(dst[4:]))
				if err != nil || a != 1.5 || float64(b) != bad {
					t.Errorf("%v: got %g, %g, %v, want 1.5, %g", c.d, a, b, err, bad)
				}
			} else if !errors.As(err, new(*checkpoint.CorruptError)) ||
				!strings.Contains(err.Error(), `tensor "w": element 1`) {
				t.Errorf("%v %g: got %v", c.d, bad, err)
			}
		}
	}
}

// The conversion of f64 to bf16 rounds twice, because it uses f32 in between. It must nevertheless give the nearest
// bf16 number, as a single rounding does.
func TestRoundingTwiceIsRoundingOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		// This value is near a tie of bf16.
		half := math.Float64frombits(math.Float64bits(1+float64(r.IntN(1<<7))/(1<<7)+1.0/(1<<8)) +
			uint64(r.IntN(3)) - 1)
		var src [8]byte
		binary.LittleEndian.PutUint64(src[:], math.Float64bits(half))
		var dst [2]byte
		if err := Convert(dst[:], tensor.BF16, src[:], tensor.F64); err != nil {
			t.Fatal(err)
		}
		got := float64(tensor.F32FromBF16(binary.LittleEndian.Uint16(dst[:])))
		for _, other := range []float64{got - 1.0/(1<<7), got + 1.0/(1<<7)} {
			if math.Abs(other-half) < math.Abs(got-half) {
				t.Fatalf("%.17g became %g, %g is nearer", half, got, other)
			}
		}
	}
}

func TestConvertRefusesOtherSizes(t *testing.T) {
	for _, c := range []struct {
		dst, src int
		from     tensor.DType
	}{{4, 8, tensor.F32}, {4, 3, tensor.F32}, {8, 4, tensor.F32}, {4, 4, tensor.I32}} {
		if Convert(make([]byte, c.dst), tensor.F32, make([]byte, c.src), c.from) == nil {
			t.Errorf("%d bytes from %d of %v: no error", c.dst, c.src, c.from)
		}
	}
}
